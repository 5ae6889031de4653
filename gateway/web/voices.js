// The list of voices, and the dialogs that add one and delete one.

import * as api from "./api.js";
import { LONGEST, Recorder, canRecord } from "./recorder.js";

const READ_ALOUD =
  "Before the rain came in, the harbour keeper counted seven small boats on their way home, and lit a lamp for each of them.";

const part = (id) => document.getElementById(id);

let recorder = null;
let recording = null; // Blob or File

export function start() {
  part("voice").addEventListener("change", showDelete);
  part("voice-add").addEventListener("click", open);
  part("voice-delete").addEventListener("click", askDelete);
  part("voice-cancel").addEventListener("click", () => part("voice-dialog").close());
  part("voice-dialog").addEventListener("close", forget);
  part("voice-file").addEventListener("change", chooseFile);
  part("record").addEventListener("click", () => (recorder ? stopRecording() : startRecording()));
  part("record").hidden = !canRecord;
  part("voice-form").addEventListener("submit", save);
  part("delete-dialog").addEventListener("close", remove);
  return load();
}

/** Fill the list; the voice chosen last stays chosen. */
export async function load(chosen = part("voice").value) {
  const names = await api.voices().catch(() => []);
  const [standard] = part("voice").options;
  part("voice").replaceChildren(standard, ...names.map((name) => new Option(name, name)));
  part("voice").value = names.includes(chosen) ? chosen : "";
  showDelete();
}

function showDelete() {
  part("voice-delete").hidden = !part("voice").value;
}

function open() {
  part("voice-form").reset();
  part("voice-text").value = canRecord ? READ_ALOUD : "";
  tell(canRecord ? "" : "Recording needs a secure address (https or localhost); a file works everywhere.");
  part("voice-dialog").showModal();
}

function forget() {
  if (recorder) stopRecording();
  keep(null);
}

async function startRecording() {
  keep(null);
  const started = new Recorder((peak, seconds) => {
    part("level").value = peak;
    part("record-time").value = `${seconds.toFixed(1)} s`;
    if (seconds >= LONGEST && recorder) stopRecording();
  });
  try {
    await started.start();
  } catch (error) {
    tell(`The microphone can't be used: ${error.message}`, "error");
    return;
  }
  recorder = started;
  showRecording(true);
  tell("Recording…");
}

function stopRecording() {
  const finished = recorder.stop();
  recorder = null;
  showRecording(false);
  tell("Recorded. Listen to it, or record again.");
  keep(finished);
}

function showRecording(active) {
  part("record").textContent = active ? "Stop recording" : "Record";
  part("record").setAttribute("aria-pressed", active);
  part("level").hidden = !active;
}

function chooseFile() {
  const [file] = part("voice-file").files;
  if (!file) return;
  if (part("voice-text").value === READ_ALOUD) part("voice-text").value = "";
  if (!part("voice-name").value) part("voice-name").value = file.name.replace(/\.\w+$/, "").replace(/[^\w -]/g, "_");
  part("record-time").value = file.name;
  keep(file);
}

function keep(blob) {
  URL.revokeObjectURL(part("preview").src);
  recording = blob;
  part("preview").hidden = !blob;
  if (blob) part("preview").src = URL.createObjectURL(blob);
  else part("preview").removeAttribute("src");
}

async function save(event) {
  event.preventDefault();
  if (recorder) stopRecording();
  if (!recording) {
    tell("Record something or choose a file first.", "error");
    return;
  }
  const name = part("voice-name").value.trim();
  part("voice-save").disabled = true;
  tell("Learning the voice…");
  try {
    await api.addVoice(name, part("voice-text").value, recording);
    await load(name);
    part("voice-dialog").close();
    part("voice").focus();
  } catch (error) {
    tell(error.message, "error");
  } finally {
    part("voice-save").disabled = false;
  }
}

function askDelete() {
  part("delete-name").textContent = part("voice").value;
  part("delete-dialog").returnValue = "keep";
  part("delete-dialog").showModal();
}

async function remove() {
  if (part("delete-dialog").returnValue !== "delete") return;
  await api.deleteVoice(part("delete-name").textContent).catch((error) => {
    part("message").dataset.kind = "error";
    part("message").textContent = error.message;
  });
  await load();
  part("voice").focus();
}

function tell(text, kind = "") {
  part("voice-message").dataset.kind = kind;
  part("voice-message").textContent = text;
}
