// Runs the engine of a page in node: page.mjs PAGE PROMPT TOKENS NAME=VALUE... prints the text. page.mjs --mutate PAGE
// COUNT checks that a page with a changed byte, or without its end, is recognized as damaged. page.mjs --chat PAGE TOKENS
// SYSTEM answers each line of the standard input as a message, with the likeliest tokens.
import { readFileSync } from "node:fs";
import { gunzipSync } from "node:zlib";

function parts(html) {
  const part = id => (html.match(new RegExp(`<(script|style)[^>]* id="${id}">([^]*?)</\\1>`)) || [])[2];
  return Object.fromEntries(["style", "facts", "engine", "model", "worker", "page", "check"].map(id => [id, part(id)]));
}

// Returns a function that says whether the parts of a page are whole, by the checksum function of the page `p`.
function wholeOf(p) {
  const code = p.page.match(/^function checksum[^]*?^}/m)[0];
  const checksum = new Function("contentOf", `${code}; return checksum();`);
  return parts => {
    const contentOf = id => { if (parts[id] === undefined) throw new Error(id); return parts[id]; };
    try { return checksum(contentOf) === contentOf("check").trim(); } catch { return false; }
  };
}

// Damaged models, and calls with wrong arguments or in a wrong order, give an Error with a reason.
async function misuse(module, engineOf, model) {
  const fails = (name, call) => {
    let message = "";
    try { call(); } catch (error) { if (error.constructor === Error) ({ message } = error); }
    if (!message) throw new Error(`${name}: no reason`);
  };
  const engineWith = async bytes => {
    const { exports } = await WebAssembly.instantiate(module, {});
    exports._initialize();
    const engine = engineOf(exports);
    if (bytes) engine.open(new Uint8Array(bytes));
    return engine;
  };
  const empty = await engineWith(), opened = await engineWith(model);
  const cut = [0, 63, 64, 5000, model.length - 1, model.length - 64].map(size => model.subarray(0, size));
  for (const bytes of cut) fails(`a model of ${bytes.length} bytes`, () => empty.open(new Uint8Array(bytes)));
  fails("begin without a model", () => empty.begin("a", ""));
  fails("next without a model", () => empty.next());
  fails("next without a text", () => opened.next());
  fails("a second model", () => opened.open(new Uint8Array(model)));
  fails("an answer to nothing", () => opened.answer([], 9));
  fails("an unknown role", () => opened.answer([{ role: "none", content: "a" }], 9));
  fails("a prompt that is too long", () => opened.begin("a b ".repeat(1e5), ""));
  for (const [name, value] of [["temp", NaN], ["temp", -1], ["top-k", 2.5], ["seed", 0.5], ["seed", -1], ["none", 1]])
    fails(`${name} ${value}`, () => opened.set(name, value));
}

// Returns the engine of a page with its model. Bytes: the class that makes texts of the bytes of the module.
async function open(path, Bytes) {
  const p = parts(readFileSync(path, "latin1"));
  if (!wholeOf(p)(p)) throw new Error(`${path} is damaged`);
  const engineOf = new Function("TextDecoder", `${p.worker}; return engineOf;`)(Bytes);
  const module = await WebAssembly.compile(gunzipSync(Buffer.from(p.engine, "base64")));
  if (WebAssembly.Module.imports(module).length) throw new Error("the module has imports");
  await misuse(module, engineOf, Buffer.from(p.model, "base64"));
  const { exports } = await WebAssembly.instantiate(module, {});
  exports._initialize();
  const engine = engineOf(exports);
  engine.open(new Uint8Array(Buffer.from(p.model, "base64")));
  return engine;
}

// An answer to a chat that does not go on with the one before is that of a new engine.
function checkNewChat(engine) {
  const bits = content => (engine.answer([{ role: "user", content }], 9), engine.next().bits);
  const first = bits("Is shop 3 open?");
  if (bits("Is") === first || bits("Is shop 3 open?") !== first) throw new Error("a new chat is not a new one");
}

async function chat(path, count, system) {
  const engine = await open(path, TextDecoder), messages = system ? [{ role: "system", content: system }] : [];
  engine.set("temp", 0);
  checkNewChat(engine);
  for (const content of readFileSync(0, "utf8").trim().split("\n")) {
    let text = "";
    messages.push({ role: "user", content });
    const dropped = engine.answer(messages, count);
    for (let i = 0, token; i < count && !token?.reason; i++) text += (token = engine.next()).text;
    messages.push({ role: "assistant", content: text });
    process.stdout.write(text.replace(/\n?$/, "\n"));
    process.stderr.write(`${dropped}\n`);
  }
}

async function write(path, prompt, count, settings) {
  // Bytes as characters: a text of random weights is seldom UTF-8, and ./generate writes its bytes.
  const engine = await open(path, class { decode = bytes => Buffer.from(bytes).toString("latin1"); });
  for (const [name, value] of settings) engine.set(name, +value);
  engine.begin(prompt, "");
  for (let i = 0, token; i < count && !token?.reason; i++) process.stdout.write((token = engine.next()).text, "latin1");
}

function mutate(path, count) {
  const html = readFileSync(path, "latin1"), whole = parts(html), isWhole = wholeOf(whole), begin = html.indexOf("<style"), end = html.lastIndexOf("</script>");
  let missed = isWhole(whole) ? 0 : 1, state = 1;
  const random = n => (state = (Math.imul(state, 1664525) + 1013904223) >>> 0) % n;
  for (let i = 0; i < count; i++) {
    const at = begin + random(end - begin), byte = String.fromCharCode((html.charCodeAt(at) + 1 + random(126)) % 128);
    const bad = i % 10 ? html.slice(0, at) + byte + html.slice(at + 1) : html.slice(0, at);
    const p = parts(bad);
    const same = Object.entries(whole).every(([id, text]) => p[id] === text); // a change between the parts
    if (isWhole(p) && !same) missed++;
  }
  if (missed) throw new Error(`${missed} of ${count} damaged pages look whole`);
}

const [path, ...rest] = process.argv.slice(2);
if (path === "--mutate") mutate(rest[0], +rest[1]);
else if (path === "--chat") await chat(rest[0], +rest[1], rest[2]);
else await write(path, rest[0], +rest[1], rest.slice(2).map(word => word.split("=")));
