// In the audio thread: a speaker that plays what it is sent, and a microphone that sends what it hears.

const JITTER_SECONDS = 0.1; // sound to have in hand before playing
const LONGEST_RESERVE_SECONDS = 2; // after each underrun it is twice as much: a few long gaps hurt less than many
const POSITION_SECONDS = 0.05;

class Speaker extends AudioWorkletProcessor {
  constructor() {
    super();
    this.queue = [];
    this.offset = 0; // in the first chunk of the queue
    this.held = 0; // samples in the queue
    this.played = 0;
    this.reported = 0;
    this.reserve = JITTER_SECONDS * sampleRate; // samples
    this.begun = this.flowing = this.complete = this.done = false;
    this.port.onmessage = ({ data }) => this.receive(data);
  }

  receive(data) {
    if (data === "end") this.complete = true;
    else if (data === "stop") this.done = true;
    else {
      this.queue.push(data);
      this.held += data.length;
    }
  }

  process(_inputs, [[output]]) {
    if (this.done) return false;
    if (!this.flowing && this.held && (this.complete || this.held >= this.reserve)) this.flow();
    if (this.flowing) this.fill(output);
    if (this.complete && !this.held) {
      this.tell({ type: "ended" });
      return false;
    }
    return true;
  }

  flow() {
    this.flowing = true;
    if (!this.begun) this.tell({ type: "playing" });
    this.begun = true;
  }

  fill(output) {
    let filled = 0;
    while (filled < output.length && this.queue.length) {
      const part = this.queue[0].subarray(this.offset, this.offset + output.length - filled);
      output.set(part, filled);
      filled += part.length;
      this.offset += part.length;
      if (this.offset === this.queue[0].length) {
        this.queue.shift();
        this.offset = 0;
      }
    }
    this.held -= filled;
    this.played += filled;
    if (filled < output.length && !this.complete) {
      this.flowing = false;
      this.reserve = Math.min(2 * this.reserve, LONGEST_RESERVE_SECONDS * sampleRate);
      this.tell({ type: "underrun" });
    } else if (this.played - this.reported >= POSITION_SECONDS * sampleRate) {
      this.reported = this.played;
      this.tell({ type: "position" });
    }
  }

  tell(message) {
    this.port.postMessage({ ...message, seconds: this.played / sampleRate });
  }
}

class Microphone extends AudioWorkletProcessor {
  process([[input]]) {
    if (input) this.port.postMessage(input.slice());
    return true;
  }
}

registerProcessor("speaker", Speaker);
registerProcessor("microphone", Microphone);
