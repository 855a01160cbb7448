"use strict";

const SETTINGS = [ // id, label, attributes, explanation
  ["temp", "Temperature", {min: 0, max: 2, step: "any", required: ""},
   "Higher values give more varied texts with more mistakes. 0 always takes the likeliest token."],
  ["top-k", "Top-k", {min: 0, max: 200, required: ""},
   "The model chooses among this many of the likeliest tokens. 0 means no limit."],
  ["top-p", "Top-p", {min: 0.05, max: 1, step: "any", required: ""},
   "The model chooses among the likeliest tokens that together have this probability. 1 means no limit."],
  ["min-p", "Min-p", {min: 0, max: 1, step: "any", required: ""},
   "The model leaves out tokens that are less likely than this share of the likeliest one. 0 means no limit."],
  ["seed", "Seed", {min: 0, max: Number.MAX_SAFE_INTEGER},
   "The same seed, prompt and settings give the same text. If this is empty, every text gets a new random seed."],
  ["tokens", "Length in tokens", {min: 1, max: 2000, value: 200, required: ""},
   "A token is a character, a part of a word, or a word. Continue writes as many tokens again."],
];
const LEVELS = [[0, "below 1 bit"], [1, "1 to 2"], [2, "2 to 4"], [4, "4 to 6"], [6, "6 to 9"], [9, "9 or more bits"]];
const REASONS = {length: "The length is reached.", stopped: "Stopped.", "end of text": "The model ended the text."};

const byId = id => document.getElementById(id);
const contentOf = id => byId(id).textContent;

// Makes an element with attributes and children. Children are elements or texts; a text never becomes markup.
function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const name in attributes) element.setAttribute(name, attributes[name]);
  element.append(...children);
  return element;
}

// FNV-1a with 32 bits of the parts of the page, which are ASCII.
function checksum() {
  let hash = 2166136261;
  for (const text of ["page", "style", "facts", "engine", "model", "worker"].map(contentOf))
    for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 16777619) >>> 0;
  return hash.toString(16).padStart(8, "0");
}

function bufferOf(id) {
  const text = atob(contentOf(id)), bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes.buffer;
}

if (checksum() !== contentOf("check").trim()) {
  const damaged = byId("damaged") || document.body.appendChild(make("p", {id: "damaged"}));
  damaged.setAttribute("role", "alert");
  damaged.textContent = "This page's file is damaged: its checksum is wrong. Please get the file again.";
  throw new Error("The checksum is wrong.");
}

// ---- the elements ----

const facts = JSON.parse(contentOf("facts"));
const pictures = () => facts.picture ? [make("img", {src: facts.picture, alt: ""}), " "] : [];
const inputs = {};
function fieldOf([id, label, attributes, explanation]) {
  inputs[id] = make("input", {id, type: "number", "aria-describedby": `${id}-help`, ...attributes});
  if (id in facts.defaults) inputs[id].value = facts.defaults[id];
  return make("div", {class: "field"}, make("label", {for: id}, label), inputs[id],
              make("p", {id: `${id}-help`}, explanation));
}

const systemField = make("textarea", {id: "system", dir: "auto", lang: "", "aria-describedby": "system-help"});
systemField.value = facts.system ?? "";
const prompt = make("textarea", {id: "prompt", dir: "auto", lang: "", spellcheck: "false", "aria-describedby": "keys"});
const labels = facts.chat ? ["Send", "Stop", "Continue", "Copy", "Restart"] : ["Write", "Stop", "Continue"];
const buttons = labels.map(label => make("button", {type: "button"}, label));
const [writeButton, stopButton, continueButton, ...chatButtons] = buttons;
const settings = make("details", {}, make("summary", {}, "Settings"),
  make("p", {}, `The length applies at once, other changes to the next ${labels[0]}.`),
  ...("system" in facts ? [make("label", {for: "system"}, "System prompt"), systemField,
    make("p", {id: "system-help", class: "help"}, "It tells the model who it is or what to do.")] : []),
  ...SETTINGS.map(fieldOf));
const color = make("input", {type: "checkbox"});
const form = make("form", {},
  make("label", {for: "prompt"}, facts.chat ? "Message" : facts.pairs ? "Question" : "Beginning of the text"), prompt,
  make("div", {class: "buttons"}, ...buttons), make("p", {id: "keys"}, facts.chat ?
    "Enter sends, Shift+Enter begins a new line, Escape stops." : "Ctrl+Enter writes, Escape stops."),
  settings, make("label", {class: "check"}, color, "Color by surprise"));
const state = make("span", {role: "status"}), speed = make("span", {});
const before = make("span", {class: "prompt"});
let written = make("span", {class: "written"}); // its children are the tokens of the text, in a chat of the last answer
const output = facts.chat ?
  make("div", {class: "output chat", role: "region", "aria-label": "Chat", tabindex: 0, lang: ""}) :
  make("div", {class: facts.pairs ? "output pairs" : "output", dir: "auto", lang: ""}, before, written);
const side = make("div", {class: "side", "aria-live": "polite", "aria-atomic": "true"});
const result = make("section", {hidden: ""}, make("h2", {}, facts.chat ? "Chat" : facts.pairs ? "Answer" : "Text"),
  make("ul", {class: "legend"}, ...LEVELS.map(([, range], level) => make("li", {class: `h${level}`}, range))),
  output, side);
const about = make("section", {}, make("h2", {}, "About this model"), make("dl", {}, ...facts.facts.map(
  ([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {dir: "auto"}, value)))));

for (const old of document.querySelectorAll("#damaged, main")) old.remove(); // main: a browser saved this page
const stateLine = make("p", {class: "state"}, state, " ", speed);
document.body.prepend(make("main", {}, make("h1", {dir: "auto"}, ...pictures(), facts.title),
                           ...(facts.chat ? [result, stateLine, form] : [form, stateLine, result]), about));

// ---- tokens ----

let queue = [];     // received tokens; the next frame shows them
let parts = [];     // tokens of an incomplete character
let current = null; // the token that the Tab key reaches

// With colors, the tokens are a list for the keyboard; without colors, they are plain text.
function mark(element, attributes) {
  for (const name in attributes)
    if (color.checked) element.setAttribute(name, attributes[name]);
    else element.removeAttribute(name);
}
const markToken = span => mark(span, {role: "option", "aria-label": span.parts.map(part => part.name).join("")});

function spanOf(token) {
  const bits = parts.reduce((sum, part) => sum + part.bits, 0);
  const span = make("span", {class: `h${LEVELS.findLastIndex(([least]) => bits >= least)}`}, token.text);
  if (/^\s*\n\s*$/.test(token.text)) span.classList.add("break");
  span.parts = parts;
  parts = [];
  markToken(span);
  return span;
}

function showQueue() {
  const spans = document.createDocumentFragment();
  for (const token of queue) {
    if (token.name) parts.push(token);
    if (token.text) spans.append(spanOf(token));
  }
  queue = [];
  written.append(spans);
  output.scrollTop = output.scrollHeight; // only a chat scrolls
  if (color.checked && !current) reach(written.firstElementChild);
}

function reach(span) {
  current?.removeAttribute("tabindex");
  current = span;
  current?.setAttribute("tabindex", 0);
}

function recolor() {
  result.classList.toggle("colored", color.checked);
  for (const tokens of output.querySelectorAll(".written")) {
    mark(tokens, {role: "listbox", "aria-label": "Tokens"});
    for (const span of tokens.children) markToken(span);
  }
  reach(color.checked ? written.firstElementChild : null);
  side.textContent = "Point at a token, tap it, or go to it with Tab and the arrow keys.";
}

function describe({name, bits, top}) {
  const percent = p => p < 0.001 ? "below 0.1%" : `${(100 * p).toFixed(1)}%`;
  const items = top.map(({text, probability}) => make("li", {}, make("bdi", {}, text), ` ${percent(probability)}`));
  const surprise = ` ${bits.toFixed(2)} bits, probability ${percent(2 ** -bits)}. Likeliest here:`;
  return make("div", {}, make("bdi", {}, name), surprise, make("ol", {}, ...items));
}

function show({target}) {
  if (color.checked && target.parts) side.replaceChildren(...target.parts.map(describe));
}

function choose(span) {
  if (!color.checked || !span?.parts) return;
  reach(span);
  span.focus();
}

function move(event) {
  if (event.altKey || event.ctrlKey || event.metaKey) return; // keys of the browser
  const left = current?.previousElementSibling, right = current?.nextElementSibling;
  const keys = {ArrowLeft: left, ArrowUp: left, ArrowRight: right, ArrowDown: right,
                Home: current?.parentElement.firstElementChild, End: current?.parentElement.lastElementChild};
  if (!(event.key in keys)) return;
  event.preventDefault();
  choose(keys[event.key]);
}

// ---- writing ----

let began = 0, count = 0, seed = 0; // of the text in progress
const isOn = button => button.getAttribute("aria-disabled") === "false";
const speedOf = (n, seconds) => `${n} token${n === 1 ? "" : "s"}, ${Math.round(n / (seconds || 1))} per second`;

// Changes the state line and says which buttons can be used. The others keep the focus, so they are not disabled.
function enter(sentence, more, ...usable) {
  showQueue();
  state.textContent = sentence;
  speed.textContent = more;
  if (messages.length && usable.includes(writeButton)) usable.push(...chatButtons);
  for (const button of buttons) button.setAttribute("aria-disabled", !usable.includes(button));
}

function send(message) {
  began = performance.now();
  count = 0;
  result.hidden = false;
  enter("Writing...", "", stopButton);
  worker.postMessage({...message, tokens: inputs.tokens.valueAsNumber});
}

// ---- a chat ----

let messages = []; // {role, content}, without the system prompt
const bubble = (role, name, said) =>
  make("div", {class: `bubble ${role}`}, make("b", {dir: "auto"}, ...(role === "user" ? [] : pictures()), name),
       make("div", {dir: "auto"}, said));

function say(content) {
  messages.push({role: "user", content});
  prompt.value = "";
  written = make("span", {class: "written"});
  output.append(bubble("user", "You", content), bubble("assistant", facts.title, written));
  return [...(systemField.value.trim() ? [{role: "system", content: systemField.value}] : []), ...messages];
}

function keepAnswer() {
  if (messages.at(-1).role === "assistant") messages.pop(); // it was continued
  messages.push({role: "assistant", content: written.textContent});
}

function takeBack() { // the message without an answer
  if (messages.at(-1)?.role !== "user") return;
  const {content} = messages.pop();
  prompt.value ||= content;
  for (let i = 0; i < 2; i++) output.lastChild.remove();
}

async function copy() {
  const nameOf = {user: "You", assistant: facts.title};
  try {
    await navigator.clipboard.writeText(messages.map(({role, content}) => `${nameOf[role]}: ${content}\n`).join("\n"));
    state.textContent = "Copied.";
  } catch { state.textContent = "The browser does not copy."; }
}

function restart() {
  messages = [];
  output.replaceChildren();
  result.hidden = true;
  enter("Ready.", "", writeButton);
  prompt.focus();
}

function write() {
  if (facts.chat && !prompt.value.trim()) return;
  seed = inputs.seed.value ? inputs.seed.valueAsNumber : Math.floor(Math.random() * 2 ** 32);
  const values = ["temp", "top-k", "top-p", "min-p"].map(name => [name, inputs[name].valueAsNumber]);
  const text = prompt.value;
  const said = facts.chat ? say(text) : null; // then `written` is that of the new answer
  before.textContent = text;
  written.replaceChildren();
  parts = [];
  recolor();
  send({type: "write", prompt: text, messages: said, settings: {...Object.fromEntries(values), seed}});
}

const answers = {
  ready: () => enter("Ready.", "", writeButton),
  tokens({tokens}) {
    if (!queue.length) requestAnimationFrame(showQueue);
    queue.push(...tokens);
    count += tokens.length;
    speed.textContent = speedOf(count, (performance.now() - began) / 1000);
  },
  end({reason, tokens, seconds, dropped}) {
    showQueue();
    if (facts.chat) keepAnswer();
    const lost = dropped ? `; the model no longer sees the first ${dropped} messages` : "";
    enter(REASONS[reason], `${speedOf(tokens, seconds)}, seed ${seed}${lost}`, writeButton,
          ...(reason in {length: 1, stopped: 1} ? [continueButton] : []));
  },
  error({text, broken}) {
    takeBack();
    enter(text[0].toUpperCase() + text.slice(1), "", ...(broken ? [] : [writeButton]));
  },
};

writeButton.onclick = () => isOn(writeButton) && form.reportValidity() && write();
stopButton.onclick = () => isOn(stopButton) && worker.postMessage({type: "stop"});
continueButton.onclick = () => isOn(continueButton) && form.reportValidity() && send({type: "continue"});
prompt.onkeydown = event => {
  if (event.key !== "Enter" || event.isComposing) return;
  if (facts.chat ? event.shiftKey : !event.ctrlKey && !event.metaKey) return;
  event.preventDefault();
  writeButton.click();
};
chatButtons.forEach((button, i) => button.onclick = () => isOn(button) && [copy, restart][i]());
document.onkeydown = ({key}) => { if (key === "Escape") stopButton.click(); };
settings.addEventListener("invalid", () => settings.open = true, true); // a closed setting cannot be reported
color.onchange = recolor;
output.onclick = ({target}) => choose(target);
output.onkeydown = move;
output.onpointerover = show;
output.addEventListener("focusin", show);

let worker;
function start() {
  const failed = ({message}) => enter(`The engine does not start: ${message || "the browser refuses it"}.`, "");
  try {
    worker = new Worker(URL.createObjectURL(new Blob([contentOf("worker"), "serve();"])));
    worker.onmessage = ({data}) => answers[data.type](data);
    worker.onerror = failed;
    const engine = bufferOf("engine"), model = bufferOf("model");
    worker.postMessage({type: "open", engine, model}, [engine, model]);
  } catch (error) { failed(error); }
}
enter("Loading the model...", "");
requestAnimationFrame(() => setTimeout(start)); // after the page is drawn
