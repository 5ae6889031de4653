// Calls to the server that served this page. Addresses are relative, so that the page also works below a prefix.

const KEY = "shoal-key";

export class ApiError extends Error {
  constructor(status, message, retryAfter) {
    super(retryAfter ? `${message} (try again in ${retryAfter} s)` : message);
    this.status = status;
  }
}

export function useKey(key) {
  sessionStorage.setItem(KEY, key);
}

/** The response, if the server accepted; else an ApiError with the server's own words. */
export async function call(path, options = {}) {
  const headers = new Headers(options.headers);
  const key = sessionStorage.getItem(KEY);
  if (key) headers.set("Authorization", `Bearer ${key}`);
  const response = await fetch(path, { ...options, headers, cache: "no-store" });
  if (response.ok) return response;
  if (response.status === 401) document.dispatchEvent(new Event("key-wanted"));
  throw new ApiError(response.status, await words(response), response.headers.get("Retry-After"));
}

async function words(response) {
  try {
    return (await response.json()).message;
  } catch {
    return `The server answered ${response.status}.`;
  }
}

/** The JSON body of a speech request. */
export function body({ text, voice, pace, temperature, seed, rate, format }) {
  const fields = { text, format };
  if (voice) fields.reference_id = voice;
  if (pace) fields.prosody = { speed: Number(pace) };
  if (temperature) fields.temperature = Number(temperature);
  if (rate && format === "pcm") fields.sample_rate = rate;
  // A seed has up to 63 bits, more than a number holds here: it goes into the text as it is.
  return JSON.stringify(fields).slice(0, -1) + (seed ? `,"seed":${BigInt(seed)}}` : "}");
}

export function say(fields, signal) {
  const headers = { "Content-Type": "application/json" };
  return call("v1/tts", { method: "POST", headers, body: body(fields), signal });
}

export async function status() {
  return (await call("status", { signal: AbortSignal.timeout(5000) })).json();
}

export async function voices() {
  return (await (await call("v1/references/list?format=json")).json()).reference_ids;
}

export function addVoice(name, text, recording) {
  const body = new FormData();
  body.append("id", name);
  body.append("text", text);
  body.append("audio", recording, recording.name ?? "recording.wav");
  return call("v1/references/add?format=json", { method: "POST", body });
}

export function deleteVoice(name) {
  const headers = { "Content-Type": "application/json" };
  const body = JSON.stringify({ reference_id: name });
  return call("v1/references/delete?format=json", { method: "DELETE", headers, body });
}
