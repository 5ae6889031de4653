// What a user takes along from the page: file names, and the request as a command.

const LONGEST_NAME = 40;

/** A file name, without its extension, from the first words of a text. */
export function fileName(text) {
  const words = text.normalize("NFKC").toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? [];
  let name = "";
  for (const word of words) {
    if (name && name.length + word.length >= LONGEST_NAME) break;
    name += (name && "-") + word.slice(0, LONGEST_NAME);
  }
  return name || "shoal";
}

/** A curl command, for a POSIX shell, that sends a JSON body to this server. */
export function curl(body) {
  const quoted = `'${body.replaceAll("'", "'\\''")}'`;
  const address = new URL("v1/tts", document.baseURI);
  return `curl '${address}' -H 'Content-Type: application/json' -d ${quoted} -o speech.mp3`;
}

/** Copy text; works over plain http too, where there is no navigator.clipboard. Returns whether the browser let us. */
export function copy(text) {
  const area = document.createElement("textarea");
  const focused = document.activeElement;
  area.value = text;
  area.className = "unseen";
  document.body.append(area);
  area.select();
  const copied = document.execCommand("copy");
  area.remove();
  focused?.focus();
  return copied;
}
