// The page: from the text to the sound, and the figures on the way.

import * as api from "./api.js";
import { bestPlayer } from "./players.js";
import { known, watch } from "./server.js";
import { copy, curl, fileName } from "./sharing.js";
import * as voices from "./voices.js";
import { Waveform } from "./waveform.js";

const part = (id) => document.getElementById(id);
const waveform = new Waveform(part("waveform"));

let take = null; // the one that is being made or was made last

/** One text on its way to the ear. */
class Take {
  constructor() {
    this.begin = performance.now();
    this.abort = new AbortController();
    this.underruns = 0;
    this.firstAudio = this.playingAfter = this.madeAfter = null; // milliseconds
    this.player = bestPlayer({
      playing: () => this.mine(() => this.playing()),
      underrun: () => this.mine(() => this.underrun()),
      position: (seconds) => this.mine(() => this.position(seconds)),
      ended: () => this.mine(() => this.ended()),
      samples: (samples, rate) => this.mine(() => this.samples(samples, rate)),
    });
  }

  /** What an abandoned take still reports is of no interest. */
  mine(action) {
    if (this === take && !this.stopped) action();
  }

  since() {
    return performance.now() - this.begin;
  }

  async run(fields) {
    this.text = fields.text;
    const { signal } = this.abort;
    this.player.prepare(known.rate);
    const response = await api.say({ ...fields, rate: known.rate, format: this.player.format }, signal);
    this.rate = Number(response.headers.get("X-Sample-Rate"));
    this.seed = response.headers.get("X-Seed");
    const opened = this.player.open(this.rate);
    const reader = response.body.getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      if (!value.length) continue;
      this.firstAudio ??= this.since();
      await opened;
      signal.throwIfAborted();
      this.player.push(value);
      show();
    }
    this.madeAfter = this.since();
    await this.player.end();
    show();
  }

  playing() {
    this.playingAfter ??= this.since();
    state("playing");
    tell("Speaking…");
    show();
  }

  underrun() {
    this.underruns++;
    show();
  }

  position(seconds) {
    waveform.play(seconds);
    clock(seconds);
  }

  samples(samples, rate) {
    waveform.add(samples, rate);
  }

  ended() {
    waveform.play(waveform.seconds);
    clock(waveform.seconds);
    const gaps = this.underruns === 1 ? "one gap" : `${this.underruns || "no"} gaps`;
    waveform.describe(`Waveform of ${waveform.seconds.toFixed(1)} seconds of sound`);
    tell(`Done: ${waveform.seconds.toFixed(1)} seconds, ${gaps}.`);
    state("done");
  }

  stop() {
    this.stopped = true;
    this.abort.abort();
    this.player.stop();
  }
}

async function speak(event) {
  event?.preventDefault();
  if (!part("speech").reportValidity()) return;
  take?.stop();
  const mine = (take = new Take());
  document.body.dataset.player = mine.player.name;
  waveform.clear();
  clock(null);
  state("waiting");
  tell("Waiting for the first sound…");
  show();
  try {
    await mine.run(fields());
  } catch (error) {
    if (mine === take && !mine.stopped) fail(mine, error);
  }
}

/** What the form asks for. */
function fields() {
  const names = ["text", "voice", "pace", "temperature", "seed"];
  return Object.fromEntries(names.map((name) => [name, part(name).value]));
}

function fail(failed, error) {
  const heard = failed.firstAudio !== null;
  const words = heard ? `The sound broke off after ${waveform.seconds.toFixed(1)} seconds.` : error.message;
  failed.stop();
  state("failed");
  tell(words, "error");
}

function stop() {
  if (!["waiting", "playing"].includes(document.body.dataset.state)) return;
  take.stop();
  state("stopped");
  tell("Stopped.");
}

function replay() {
  take.stopped = false;
  state("playing");
  tell("Playing again…");
  take.player.replay();
}

function download() {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(take.player.file());
  link.download = `${fileName(take.text)}.${take.player.extension}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

// What is shown

function state(name) {
  document.body.dataset.state = name;
  const busy = name === "waiting" || name === "playing";
  const heard = !busy && Boolean(take?.player.hasSound);
  part("stop").disabled = !busy;
  part("replay").disabled = !heard;
  part("download").disabled = !heard;
}

function tell(text, kind = "") {
  part("message").dataset.kind = kind;
  part("message").textContent = text;
}

function clock(seconds) {
  part("clock").textContent = seconds === null ? "" : `${time(seconds)} / ${time(waveform.seconds)}`;
}

function time(seconds) {
  return `${Math.floor(seconds / 60)}:${(seconds % 60).toFixed(1).padStart(4, "0")}`;
}

function show() {
  const { firstAudio, playingAfter, madeAfter, underruns, rate, seed } = take;
  const made = waveform.seconds;
  const spent = (madeAfter ?? take.since()) / 1000;
  write("first-audio", firstAudio === null ? "–" : milliseconds(firstAudio));
  write("playing-after", playingAfter === null ? "" : `playing after ${milliseconds(playingAfter)}`);
  write("sound-length", made ? `${made.toFixed(1)} s` : "–");
  write("sound-rate", rate ? `${rate / 1000} kHz` : "");
  write("speed", made ? `${(made / spent).toFixed(1)}×` : "–");
  write("underruns", firstAudio === null ? "–" : String(underruns));
  part("seed-used").hidden = !seed;
  write("seed-value", seed ?? "");
}

function milliseconds(value) {
  return value < 10_000 ? `${Math.round(value)} ms` : `${(value / 1000).toFixed(1)} s`;
}

function write(id, text) {
  if (part(id).textContent !== text) part(id).textContent = text;
}

// What the user does

part("speech").addEventListener("submit", speak);
part("stop").addEventListener("click", stop);
part("replay").addEventListener("click", replay);
part("download").addEventListener("click", download);
part("copy-curl").addEventListener("click", () => {
  if (!part("speech").reportValidity()) return;
  tell(copy(curl(api.body({ ...fields(), format: "mp3" }))) ? "Copied; a key, if needed, is not in it." : "The browser does not let this page copy.");
});
part("seed-keep").addEventListener("click", () => {
  part("seed").value = take.seed;
  document.querySelector("details").open = true;
  part("seed").focus();
});
part("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  api.useKey(part("key").value);
  part("key-form").hidden = true;
  voices.load();
  part("text").focus();
});
document.addEventListener("key-wanted", () => {
  if (!part("key-form").hidden) return;
  part("key-form").hidden = false;
  part("key").focus();
});
document.addEventListener("keydown", (event) => {
  if (document.querySelector("dialog[open]")) return;
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) speak(event);
  else if (event.key === "Escape") stop();
});

if (/Mac|iPhone|iPad/.test(navigator.platform)) part("keys").querySelector("kbd").textContent = "⌘";
state("idle");
watch();
voices.start();
