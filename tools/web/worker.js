"use strict";

// Wraps the exports of the WebAssembly module (tools/web/module.c). The functions throw an Error with the reason. No view of
// the memory is kept, because it is replaced when it grows.
function engineOf(exports) {
  const call = {}; // the functions, without the prefix of their names
  for (const name in exports) call[name.replace("inkling_", "")] = exports[name];
  const decoder = new TextDecoder("utf-8", {ignoreBOM: true});
  const bytesAt = (pointer, size) => new Uint8Array(exports.memory.buffer, pointer >>> 0, size);
  const textAt = (pointer, size) => decoder.decode(bytesAt(pointer, size));
  const stringAt = pointer => textAt(pointer, bytesAt(pointer).indexOf(0));

  function check(ok, reason) {
    if (!ok) throw new Error(reason || stringAt(call.error()));
  }

  // Copies bytes into the memory of the module.
  function copyOf(bytes) {
    const pointer = call.allocate(bytes.length);
    check(pointer, `There is no memory for ${bytes.length} bytes.`);
    bytesAt(pointer, bytes.length).set(bytes);
    return pointer;
  }

  // Calls use(pointer, size) with a zero-terminated copy of a text.
  function withText(text, use) {
    const bytes = new TextEncoder().encode(text + "\0"), pointer = copyOf(bytes);
    const result = use(pointer, bytes.length - 1);
    call.release(pointer);
    return result;
  }

  // Opens a model, a Uint8Array. Returns whether it has an encoder.
  function open(model) {
    check(call.open(copyOf(model), model.length));
    return Boolean(call.encoder());
  }
  function set(name, value) {
    check(withText(name, pointer => call.set(pointer, value)), `${name} cannot be ${value}.`);
  }
  function begin(prompt, answer) {
    check(withText(prompt, (p, size) => withText(answer, (a, answerSize) => call.begin(p, size, a, answerSize))));
  }

  // Begins an answer of at most `most` tokens to messages of a chat: [{role, content}]. Returns how many of the oldest
  // ones do not fit into the context.
  function answer(messages, most) {
    call.forget();
    for (const {role, content} of messages) {
      const bytes = new TextEncoder().encode(content);
      check(call.say(["system", "user", "assistant"].indexOf(role), copyOf(bytes), bytes.length));
    }
    check(call.answer(most));
    return call.dropped();
  }

  // Draws a token: {text, name, bits, top}. The text is empty while its last character is incomplete.
  // At the end of the text: {text, reason}, where the text is what was incomplete.
  function next() {
    const drawn = call.next(), top = [];
    check(drawn >= 0);
    const text = textAt(call.text(), call.text_size());
    if (!drawn) return {text, reason: stringAt(call.reason())};
    for (let i = 0; i < call.alternatives(); i++)
      top.push({text: stringAt(call.show(call.alternative(i))), probability: Math.exp(call.alternative_logprob(i))});
    return {text, name: stringAt(call.show(call.token())), bits: Math.max(0, -call.logprob() / Math.LN2), top};
  }

  return {open, set, begin, answer, next};
}

// Answers the messages of the page. Writes in slices of 30 ms; between them, it can receive "stop".
function serve() {
  const {port1, port2} = new MessageChannel();
  let engine, dropped = 0, job; // job: the writing in progress, {limit, tokens, start, stopped}

  async function load(zipped) {
    const code = new Blob([zipped]).stream().pipeThrough(new DecompressionStream("gzip"));
    return (await WebAssembly.instantiate(await new Response(code).arrayBuffer(), {})).instance.exports;
  }
  async function open(message) {
    const exports = await load(message.engine).catch(error => {
      throw new Error(`This page needs Chrome 97, Firefox 113, Safari 16.4, or a later browser (${error.message}).`);
    });
    if (exports._initialize) exports._initialize();
    const opened = engineOf(exports);
    opened.open(new Uint8Array(message.model));
    engine = opened;
    postMessage({type: "ready"});
  }
  function write({type, prompt, messages, settings, tokens}) {
    for (const name in settings) engine.set(name, settings[name]);
    if (type === "write" && messages) dropped = engine.answer(messages, tokens);
    else if (type === "write") engine.begin(prompt, "");
    port2.postMessage("slice");
    job = {limit: tokens, tokens: 0, start: performance.now(), stopped: false};
  }
  function slice() {
    const tokens = [], pause = performance.now() + 30;
    let reason = job.stopped ? "stopped" : "";
    while (!reason && performance.now() < pause) {
      const token = engine.next();
      reason = token.reason || (++job.tokens >= job.limit ? "length" : "");
      if (token.name || token.text) tokens.push(token);
    }
    if (tokens.length) postMessage({type: "tokens", tokens});
    if (!reason) return port2.postMessage("slice");
    postMessage({type: "end", reason, tokens: job.tokens, dropped, seconds: (performance.now() - job.start) / 1000});
    job = null;
  }
  // An Error of engineOf() leaves the engine usable; any other kind, such as a trap, does not.
  function fail(error) {
    const broken = !engine || error.constructor !== Error;
    if (engine && broken) error = new Error(`The engine failed (${error.message}). Please reload the page.`);
    if (broken) engine = null;
    job = null;
    postMessage({type: "error", text: error.message, broken});
  }
  const answers = {open, write, continue: write, stop: () => job && (job.stopped = true)};
  port1.onmessage = () => Promise.resolve().then(() => job && slice()).catch(fail);
  self.onmessage = ({data}) => Promise.resolve().then(() => answers[data.type](data)).catch(fail);
}
