// The waveform: it grows with the sound, and what has been played is coloured.

const PEAKS_PER_SECOND = 100;
const SHORTEST = 5; // seconds that the full width stands for at least
const BAR = 3; // pixels
const GAP = 2;
const SOFTNESS = 0.8;
const FULL_HEIGHT = 0.3; // what takes the full height while nothing louder has come
const CALM_MILLISECONDS = 250; // between two drawings for those who want little motion

const still = matchMedia("(prefers-reduced-motion: reduce)");

export class Waveform {
  constructor(canvas) {
    this.canvas = canvas;
    this.drawn = 0;
    this.clear();
    new ResizeObserver(() => this.refresh()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.refresh());
  }

  clear() {
    this.peaks = [];
    this.samples = 0;
    this.rate = 1;
    this.loudest = FULL_HEIGHT;
    this.position = 0;
    this.describe("No sound yet");
    this.refresh();
  }

  get seconds() {
    return this.samples / this.rate;
  }

  add(samples, rate) {
    this.rate = rate;
    for (const sample of samples) {
      const at = Math.floor((this.samples++ * PEAKS_PER_SECOND) / rate);
      this.peaks[at] = Math.max(this.peaks[at] ?? 0, Math.abs(sample));
      this.loudest = Math.max(this.loudest, this.peaks[at]);
    }
    this.refresh();
  }

  play(position) {
    this.position = position;
    this.refresh();
  }

  describe(text) {
    this.canvas.setAttribute("aria-label", text);
  }

  refresh() {
    this.pending ??= requestAnimationFrame((now) => {
      this.pending = undefined;
      if (still.matches && now - this.drawn < CALM_MILLISECONDS) {
        setTimeout(() => this.refresh(), CALM_MILLISECONDS);
        return;
      }
      this.drawn = now;
      this.draw();
    });
  }

  draw() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    const scale = devicePixelRatio;
    this.canvas.width = Math.round(width * scale);
    this.canvas.height = Math.round(height * scale);
    const pen = this.canvas.getContext("2d");
    pen.scale(scale, scale);
    const style = getComputedStyle(this.canvas);
    const [played, ahead, rest] = ["--accent", "--pale", "--line"].map((name) => style.getPropertyValue(name));
    const bars = Math.floor((width + GAP) / (BAR + GAP));
    const shown = Math.max(this.seconds, SHORTEST);
    for (let bar = 0; bar < bars; bar++) {
      const from = (bar / bars) * shown;
      const until = ((bar + 1) / bars) * shown;
      const size = Math.max(BAR, this.loudness(from, until) * height);
      pen.fillStyle = from >= this.seconds ? rest : until <= this.position ? played : ahead;
      pen.beginPath();
      pen.roundRect(bar * (BAR + GAP), (height - size) / 2, BAR, size, BAR / 2);
      pen.fill();
    }
  }

  /** The peak of a span, as a share of the loudest; the power brings soft sounds into view. */
  loudness(from, until) {
    const first = Math.floor(from * PEAKS_PER_SECOND);
    const last = Math.max(first + 1, Math.floor(until * PEAKS_PER_SECOND));
    return (Math.max(0, ...this.peaks.slice(first, last)) / this.loudest) ** SOFTNESS;
  }
}
