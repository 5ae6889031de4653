// Three ways to play a reply while it comes; the first that the browser has is taken.
//
// A player is told prepare(likely rate) while the user's touch still counts, open(rate), then push(bytes) and end(), or
// stop(); replay() plays the whole once more, and file() is what to download.
// It calls: playing, underrun, position(seconds), ended, samples(floats, rate).

import { wavFile } from "./wav.js";

const MP3 = "audio/mpeg";

export function bestPlayer(listener) {
  if (window.AudioWorkletNode && window.isSecureContext) return new WorkletPlayer(listener);
  if (window.MediaSource?.isTypeSupported(MP3)) return new MediaSourcePlayer(listener);
  return new FilePlayer(listener);
}

const contexts = new Map(); // sample rate to audio context with the worklet loaded

/** An audio context of that rate, in which the worklet's processors are known. */
export async function audioContext(rate) {
  if (!contexts.has(rate)) contexts.set(rate, prepare(new AudioContext({ sampleRate: rate })));
  const context = await contexts.get(rate);
  await context.resume();
  return context;
}

async function prepare(context) {
  context.resume().catch(() => {}); // iPhones allow sound only if it is started within the touch
  if (navigator.audioSession) navigator.audioSession.type = "playback"; // or the mute switch silences it
  await context.audioWorklet.addModule(new URL("worklet.js", import.meta.url));
  return context;
}

/** PCM, played sample by sample in the audio thread. */
class WorkletPlayer {
  name = "worklet";
  format = "pcm";
  extension = "wav";

  constructor(listener) {
    this.listener = listener;
    this.chunks = [];
    this.odd = new Uint8Array(); // half a sample whose other half has not come yet
  }

  prepare(rate) {
    if (rate) audioContext(rate);
  }

  get hasSound() {
    return this.chunks.length > 0;
  }

  async open(rate) {
    this.rate = rate;
    await this.connect();
  }

  async connect() {
    this.stopped = false;
    const context = await audioContext(this.rate);
    if (this.stopped) return;
    const node = new AudioWorkletNode(context, "speaker", { numberOfInputs: 0, outputChannelCount: [1] });
    node.port.onmessage = ({ data }) => {
      if (node === this.node) this.listener[data.type](data.seconds);
      if (data.type === "ended") node.disconnect();
    };
    node.connect(context.destination);
    this.node = node;
  }

  push(bytes) {
    const whole = this.whole(bytes);
    const view = new DataView(whole.buffer, whole.byteOffset, whole.length);
    const samples = new Float32Array(view.byteLength / 2);
    for (let index = 0; index < samples.length; index++) samples[index] = view.getInt16(2 * index, true) / 32768;
    this.chunks.push(samples);
    this.listener.samples(samples, this.rate);
    this.node.port.postMessage(samples);
  }

  /** The bytes of whole samples; half a sample at the end waits for the next bytes. */
  whole(bytes) {
    const joined = new Uint8Array(this.odd.length + bytes.length);
    joined.set(this.odd);
    joined.set(bytes, this.odd.length);
    const even = joined.length - (joined.length % 2);
    this.odd = joined.subarray(even);
    return joined.subarray(0, even);
  }

  end() {
    this.node.port.postMessage("end");
  }

  stop() {
    this.stopped = true;
    this.node?.port.postMessage("stop");
    this.node?.disconnect();
    this.node = null;
  }

  async replay() {
    this.stop();
    await this.connect();
    for (const chunk of this.chunks) this.node.port.postMessage(chunk);
    this.end();
  }

  file() {
    return wavFile(this.chunks, this.rate);
  }
}

/** What the two players of MP3 share: an audio element, and all bytes for the download. */
class Mp3Player {
  format = "mp3";
  extension = "mp3";

  constructor(listener) {
    this.listener = listener;
    this.parts = [];
    this.audio = new Audio();
    this.audio.addEventListener("playing", () => listener.playing(), { once: true });
    this.audio.addEventListener("timeupdate", () => listener.position(this.audio.currentTime));
    this.audio.addEventListener("ended", () => listener.ended());
  }

  get hasSound() {
    return this.parts.length > 0;
  }

  stop() {
    this.audio.pause();
  }

  /** Play again what came, all of it or the part before a stop. */
  async replay() {
    if (this.complete) this.audio.currentTime = 0;
    else {
      this.complete = true;
      this.audio.src = URL.createObjectURL(this.file());
      await this.draw();
    }
    await this.audio.play();
  }

  file() {
    return new Blob(this.parts, { type: MP3 });
  }

  /** The waveform of a compressed sound is known when it is whole. */
  async draw() {
    const context = new OfflineAudioContext(1, 1, 44100);
    const sound = await context.decodeAudioData(await this.file().arrayBuffer());
    this.listener.samples(sound.getChannelData(0), sound.sampleRate);
  }
}

/** MP3 through MediaSource: where there is no worklet, such as at an address without TLS. */
class MediaSourcePlayer extends Mp3Player {
  name = "media-source";

  prepare() {
    this.audio.addEventListener("waiting", () => {
      if (this.audio.currentTime > 0 && !this.complete) this.listener.underrun();
    });
    this.source = new MediaSource();
    this.opened = new Promise((resolve) => this.source.addEventListener("sourceopen", resolve, { once: true }));
    this.audio.src = URL.createObjectURL(this.source);
    this.audio.play().catch(() => {}); // refused when it is stopped before it began
  }

  async open() {
    await this.opened;
    this.buffer = this.source.addSourceBuffer(MP3);
    this.waiting = [];
    this.buffer.addEventListener("updateend", () => this.feed());
  }

  push(bytes) {
    this.parts.push(bytes);
    this.waiting.push(bytes);
    this.feed();
  }

  end() {
    this.complete = true;
    this.feed();
    return this.draw();
  }

  feed() {
    if (this.buffer.updating || this.source.readyState !== "open") return;
    if (this.waiting.length) this.buffer.appendBuffer(this.waiting.shift());
    else if (this.complete) this.source.endOfStream();
  }
}

/** The whole file first, then the sound. */
class FilePlayer extends Mp3Player {
  name = "file";

  prepare() {}

  async open() {}

  push(bytes) {
    this.parts.push(bytes);
  }

  async end() {
    this.complete = true;
    this.audio.src = URL.createObjectURL(this.file());
    await Promise.all([this.audio.play(), this.draw()]);
  }
}
