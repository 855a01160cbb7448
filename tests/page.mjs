// Runs the engine of a page in node: page.mjs PAGE PROMPT TOKENS NAME=VALUE... prints the text. page.mjs --mutate PAGE
// COUNT checks that a page with a changed byte, or without its end, is recognized as damaged.
import { readFileSync } from "node:fs";
import { gunzipSync } from "node:zlib";

function parts(html) {
  const part = id => (html.match(new RegExp(`<(script|style)[^>]* id="${id}">([^]*?)</\\1>`)) || [])[2];
  return Object.fromEntries(["style", "facts", "engine", "model", "worker", "page", "check"].map(id => [id, part(id)]));
}

// As web/page.js computes it.
function isWhole(p) {
  let h = 2166136261;
  for (const id of ["page", "style", "facts", "engine", "model", "worker"])
    for (const c of p[id] ?? "\0") h = Math.imul(h ^ c.charCodeAt(0), 16777619) >>> 0;
  return p.page !== undefined && p.check === h.toString(16).padStart(8, "0");
}

async function write(path, prompt, count, settings) {
  const p = parts(readFileSync(path, "latin1"));
  if (!isWhole(p)) throw new Error(`${path} is damaged`);
  // Bytes as characters: a text of random weights is seldom UTF-8, and ./generate writes its bytes.
  const Bytes = class { decode = bytes => Buffer.from(bytes).toString("latin1"); };
  const engineOf = new Function("TextDecoder", `${p.worker}; return engineOf;`)(Bytes);
  const module = await WebAssembly.compile(gunzipSync(Buffer.from(p.engine, "base64")));
  if (WebAssembly.Module.imports(module).length) throw new Error("the module has imports");
  const { exports } = await WebAssembly.instantiate(module, {});
  exports._initialize();
  const engine = engineOf(exports);
  engine.open(new Uint8Array(Buffer.from(p.model, "base64")));
  for (const [name, value] of settings) engine.set(name, +value);
  engine.begin(prompt, "");
  for (let i = 0, token; i < count && !token?.reason; i++) process.stdout.write((token = engine.next()).text, "latin1");
}

function mutate(path, count) {
  const html = readFileSync(path, "latin1"), begin = html.indexOf("<style"), end = html.lastIndexOf("</script>");
  let missed = 0, state = 1;
  const random = n => (state = (Math.imul(state, 1664525) + 1013904223) >>> 0) % n;
  for (let i = 0; i < count; i++) {
    const at = begin + random(end - begin), byte = String.fromCharCode((html.charCodeAt(at) + 1 + random(126)) % 128);
    const bad = i % 10 ? html.slice(0, at) + byte + html.slice(at + 1) : html.slice(0, at);
    const p = parts(bad);
    const same = Object.entries(parts(html)).every(([id, text]) => p[id] === text); // a change between the parts
    if (isWhole(p) && !same) missed++;
  }
  if (missed) throw new Error(`${missed} of ${count} damaged pages look whole`);
}

const [path, ...rest] = process.argv.slice(2);
if (path === "--mutate") mutate(rest[0], +rest[1]);
else await write(path, rest[0], +rest[1], rest.slice(2).map(word => word.split("=")));
