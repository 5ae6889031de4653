// The microphone, recorded as a WAV file: what every server can read.

import { audioContext } from "./players.js";
import { wavFile } from "./wav.js";

const RATE = 44100;
export const LONGEST = 30; // seconds

export const canRecord = Boolean(window.isSecureContext && window.AudioWorkletNode && navigator.mediaDevices);

export class Recorder {
  /** onLevel(peak, seconds) is called for what is heard. */
  constructor(onLevel) {
    this.onLevel = onLevel;
    this.chunks = [];
    this.samples = 0;
  }

  async start() {
    const audio = { channelCount: 1, echoCancellation: false, noiseSuppression: false };
    this.stream = await navigator.mediaDevices.getUserMedia({ audio });
    const context = await audioContext(RATE);
    this.source = context.createMediaStreamSource(this.stream);
    this.node = new AudioWorkletNode(context, "microphone", { numberOfOutputs: 0, channelCount: 1, channelCountMode: "explicit" });
    this.node.port.onmessage = ({ data }) => this.hear(data);
    this.source.connect(this.node);
  }

  hear(samples) {
    this.chunks.push(samples);
    this.samples += samples.length;
    this.onLevel(samples.reduce((peak, sample) => Math.max(peak, Math.abs(sample)), 0), this.samples / RATE);
  }

  stop() {
    this.source.disconnect();
    this.node.port.onmessage = null;
    for (const track of this.stream.getTracks()) track.stop();
    return wavFile(this.chunks, RATE);
  }
}
