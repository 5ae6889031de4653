// The state of the server in the head of the page: asked for each second, and only while somebody looks.

import * as api from "./api.js";

const INTERVAL = 1000; // milliseconds

export const known = { rate: null }; // the model's sample rate

export function watch() {
  let timer = 0;
  const ask = async () => {
    clearTimeout(timer);
    if (document.hidden) return;
    show(await api.status().catch(() => null));
    timer = setTimeout(ask, INTERVAL);
  };
  document.addEventListener("visibilitychange", ask);
  ask();
}

function show(status) {
  const server = document.getElementById("server");
  const state = status === null ? "down" : status.ready ? "ready" : "unready";
  if (status) known.rate = status.sample_rate;
  server.dataset.state = state;
  write("server-state", { down: "Server not reachable", unready: "Getting ready…", ready: status?.model }[state]);
  write("server-load", state === "ready" ? load(status) : "");
}

function load({ running, waiting }) {
  if (!running && !waiting) return "ready";
  return [running && `${running} speaking`, waiting && `${waiting} waiting`].filter(Boolean).join(", ");
}

function write(id, text) {
  const part = document.getElementById(id);
  if (part.textContent !== text) part.textContent = text;
}
