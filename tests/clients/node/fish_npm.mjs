// ``fish-audio`` for Node. How it is run, and what it prints: see ../scripts/scenarios.py.

import { createReadStream, readFileSync } from "node:fs";

import { FishAudioClient, RealtimeEvents } from "fish-audio";

class Heard {
  #began = performance.now();
  #pieces = [];
  #arrivals = [];

  add(piece) {
    this.#pieces.push(Buffer.from(piece));
    this.#arrivals.push((performance.now() - this.#began) / 1000);
  }

  told() {
    const sound = Buffer.concat(this.#pieces).toString("base64");
    const times = this.#arrivals;
    return { sound, pieces: times.length, first: times[0] ?? 0, last: times.at(-1) ?? 0 };
  }
}

async function failure(call) {
  try {
    await call();
  } catch (error) {
    return { type: error.name, status: error.statusCode, message: error.body?.message ?? error.message };
  }
  throw new Error("it did not fail");
}

async function heard(stream) {
  const sound = new Heard();
  for await (const piece of stream) sound.add(piece);
  return sound.told();
}

async function convert(client, { fields }) {
  const sound = new Heard();
  for await (const piece of await client.textToSpeech.convert({ text: "Hello there.", ...fields })) sound.add(piece);
  return sound.told();
}

async function cloned(client, { recording }) {
  const audio = new File([readFileSync(recording)], "voice.wav");
  const request = { text: "Hello there.", format: "wav", references: [{ audio, text: "What is said." }] };
  return heard(await client.textToSpeech.convert(request));
}

// The second sentence is not written before the first is heard. This client does not close the socket itself: the
// process ends when the server does.
async function live(client, { fields }) {
  const sound = new Heard();
  let wasHeard;
  const first = new Promise((resolve) => (wasHeard = resolve));
  async function* text() {
    yield "This is the first of two sentences, and it is a rather long one, as sentences go. ";
    yield "Now the next one ";
    await first;
    yield "ends.";
  }
  const connection = await client.textToSpeech.convertRealtime({ text: "", ...fields }, text());
  connection.on(RealtimeEvents.AUDIO_CHUNK, (audio) => {
    sound.add(audio);
    wasHeard();
  });
  return new Promise((resolve, reject) => {
    connection.on(RealtimeEvents.ERROR, reject);
    connection.on(RealtimeEvents.CLOSE, () => resolve(sound.told()));
  });
}

async function voices(client, { recording }) {
  const voice = await client.voices.ivc.create({
    title: "Dora",
    voices: [createReadStream(recording)],
    texts: ["What is said."],
  });
  await client.voices.update(voice._id, { title: "Dora of Hull" });
  const found = await client.voices.get(voice._id);
  const listed = await client.voices.search({ title: "Dora" });
  const spoken = await heard(
    await client.textToSpeech.convert({ text: "Hello there.", format: "wav", reference_id: voice._id }),
  );
  await client.voices.delete(voice._id);
  const after = await failure(() => client.voices.get(voice._id));
  return {
    created: [voice.title, voice.state],
    found: found.title,
    listed: listed.items.map((item) => item.title),
    spoken,
    after,
  };
}

async function account(client) {
  const [credit, plan] = [await client.user.get_api_credit(), await client.user.get_package()];
  return { credit: Number(credit.credit), balance: plan.balance };
}

async function failures(client, { base }) {
  const stranger = new FishAudioClient({ apiKey: "not a key", baseUrl: base });
  async function live() {
    const nothing = (async function* () {})();
    const connection = await client.textToSpeech.convertRealtime({ text: "", reference_id: "nobody" }, nothing);
    return new Promise((_, reject) => connection.on(RealtimeEvents.ERROR, reject));
  }
  return {
    stranger: await failure(() => stranger.textToSpeech.convert({ text: "Hello." })),
    "no such voice": await failure(() => client.textToSpeech.convert({ text: "Hello.", reference_id: "nobody" })),
    "no such voice live": await failure(live),
  };
}

const [base, name, options] = process.argv.slice(2);
const { key, ...rest } = JSON.parse(options);
const client = new FishAudioClient({ apiKey: key, baseUrl: base });
const scenarios = { convert, cloned, live, voices, account, failures };
console.log(JSON.stringify(await scenarios[name](client, { base, ...rest })));
