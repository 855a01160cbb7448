#!/usr/bin/env python3
"""Opens pages of ./generate --html in a browser (Chromium: offline): page_browser.py BROWSER DIR [options]

BROWSER: chromium or firefox-esr; python3-websocket is needed, too. For every NAME.prompt in DIR (UTF-8), the page
NAME.html has to write NAME.txt, or the beginning of it, with the seed 7, no message in the console, and no request.
For every NAME.said, the chat NAME.html has to answer its lines by NAME.txt, with the likeliest tokens.
Then it opens damaged copies of the last page, which have to say so. --axe: also checks the pages with axe-core.
--pictures: also writes NAME.png, of wide and narrow windows, light and dark. Prints `ok NAME` or `not ok NAME: why`,
and the times until the page was ready and until its first token.
"""

import argparse
import base64
import json
import pathlib
import random
import socket
import subprocess
import tempfile
import time

import websocket

STATE = "(document.querySelector('[role=status]')?.textContent ?? '')"
POINT = """document.querySelector('details').open = false; scrollTo(0, 1e6); document.activeElement.blur();
           document.querySelector('.output .h3')?.dispatchEvent(new PointerEvent('pointerover', {bubbles: true}))"""
# Elements that only markup in texts would make
HOSTILE = ["img[src=x]", "main script", "h1 :not([src^='data:'])", ".prompt *", ".side bdi *"]


class Chromium:
    """Chrome's DevTools protocol."""
    arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--user-data-dir={profile}",
                 "--remote-debugging-port={port}", "about:blank"]
    path = "/devtools/page/"
    events = {"Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded", "Network.requestWillBeSent"}

    def connect(self, port):
        import urllib.request
        pages = json.load(urllib.request.urlopen(f"http://127.0.0.1:{port}/json"))
        url = next(page["webSocketDebuggerUrl"] for page in pages if page["type"] == "page")
        self.socket = websocket.create_connection(url, suppress_origin=True, timeout=60)

    def begin(self):
        for domain in ("Runtime", "Log", "Network", "Page"):
            self.call(f"{domain}.enable")

    def look(self, width, dark):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme",
                                                           "value": "dark" if dark else "light"}])
        self.call("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=0, uploadThroughput=0)

    def open(self, url):
        self.call("Page.navigate", url=url)

    def evaluate(self, script):
        reply = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in reply:
            raise RuntimeError(f"{script[:80]}: {reply['exceptionDetails']}")
        return reply["result"].get("value")

    def picture(self):
        return self.call("Page.captureScreenshot")["data"]


class Firefox:
    """WebDriver BiDi."""
    arguments = ["--headless", "--no-remote", "--profile", "{profile}", "--remote-debugging-port", "{port}"]
    events = {"log.entryAdded", "network.beforeRequestSent"}

    def connect(self, port):
        self.socket = websocket.create_connection(f"ws://127.0.0.1:{port}/session", suppress_origin=True, timeout=60)

    def begin(self):
        self.call("session.new", capabilities={})
        self.call("session.subscribe", events=sorted(self.events))
        self.context = self.call("browsingContext.getTree")["contexts"][0]["context"]

    def look(self, width, dark):
        self.call("browsingContext.setViewport", context=self.context, viewport={"width": width, "height": 800})

    def open(self, url):
        self.call("browsingContext.navigate", context=self.context, url=url, wait="complete")

    def evaluate(self, script):
        reply = self.call("script.evaluate", expression=script, target={"context": self.context}, awaitPromise=True)
        if reply["type"] == "exception":
            raise RuntimeError(f"{script[:80]}: {reply['exceptionDetails']['text']}")
        return reply["result"].get("value")

    def picture(self):
        return self.call("browsingContext.captureScreenshot", context=self.context)["data"]


class Browser:
    """A browser of either protocol; `messages` are the console messages and the requests of the page."""

    def __init__(self, program):
        kind = Firefox if "firefox" in program else Chromium
        self.__class__ = type(kind.__name__, (Browser, kind), {})
        self.profile, self.number, self.messages = tempfile.TemporaryDirectory(ignore_cleanup_errors=True), 0, []
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        arguments = [word.format(profile=self.profile.name, port=port) for word in kind.arguments]
        self.process = subprocess.Popen([program, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for attempt in range(120):
            try:
                self.connect(port)
                break
            except (OSError, websocket.WebSocketException, StopIteration):
                if attempt == 119:
                    raise
                time.sleep(0.25)
        self.begin()

    def call(self, method, **parameters):
        self.number += 1
        self.socket.send(json.dumps({"id": self.number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self.socket.recv())
            if message.get("id") == self.number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            if message.get("method") in self.events:
                self.take(message["params"])

    def take(self, event):
        url = event.get("request", {}).get("url")
        if url is None or not url.startswith(("file:", "blob:", "data:", "about:")):
            self.messages.append(json.dumps(event)[:300])

    def wait(self, script, seconds=60):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            value = self.evaluate(script)
            if value:
                return value
            time.sleep(0.02)
        raise RuntimeError(f"waited {seconds} s for {script}: {self.evaluate(STATE)}")


def report(name, problem, note=""):
    print(f"not ok {name}: {problem}" if problem else f"ok {name}{note}", flush=True)


def write(browser, path, prompt):
    """Returns the text that the page writes, and the seconds until it was ready and until its first token."""
    begin = time.monotonic()
    browser.open(path.as_uri())
    browser.wait(f"{STATE}.startsWith('Ready')")
    ready = time.monotonic() - begin
    browser.evaluate(f"""document.querySelector('#prompt').value = {json.dumps(prompt)};
                         document.querySelector('#seed').value = 7;
                         document.querySelector('input[type=checkbox]').click();
                         document.querySelector('button').click()""")
    begin = time.monotonic()
    ended = f"!/^(Writing|Ready)/.test({STATE})"
    browser.wait(f"document.querySelector('.output > span:last-child').childElementCount || {ended}")
    first = time.monotonic() - begin
    browser.wait(ended)
    return browser.evaluate("document.querySelector('.output > span:last-child').textContent"), ready, first


def talk(browser, path, axe, pictures):
    """Sends the lines of NAME.said by Enter. Returns what went wrong."""
    key = "new KeyboardEvent('keydown', {key: 'Enter', bubbles: true})"
    enter = f"document.querySelector('#prompt').dispatchEvent({key})"
    answers = "[...document.querySelectorAll('.written')].map(e => e.textContent.replace(/\\n?$/, '\\n')).join('')"
    browser.open(path.with_suffix(".html").as_uri())
    browser.wait(f"{STATE}.startsWith('Ready')")
    browser.evaluate("document.querySelector('#tokens').value = 40; document.querySelector('#temp').value = 0;"
                     "document.querySelector('input[type=checkbox]').click()")
    for line in path.read_text(encoding="utf-8").splitlines():
        browser.evaluate(f"document.querySelector('#prompt').value = {json.dumps(line)}; {enter}")
        browser.wait(f"!/^(Writing|Ready)/.test({STATE})")
    expected, text = path.with_suffix(".txt").read_text(encoding="utf-8"), browser.evaluate(answers)
    if text != expected:
        return f"wrote {text!r}, not {expected!r}"
    if pictures:
        path.with_suffix(".png").write_bytes(base64.b64decode(browser.picture()))
    problem = page_problem(browser, axe)
    widths = browser.evaluate("[...document.querySelectorAll('.bubble.assistant')]"
                              ".map(bubble => bubble.querySelector('img')?.naturalWidth).join()")
    if set(widths.split(",")) != {"1"}:
        problem = problem or f"the widths of the pictures are {widths}"
    browser.evaluate("document.querySelectorAll('button')[4].click()")
    return problem or ("" if browser.evaluate(answers) == "" else "Restart keeps answers")


def page_problem(browser, axe):
    if browser.messages:
        return browser.messages[0]
    if browser.evaluate(f"document.querySelectorAll({json.dumps(', '.join(HOSTILE))}).length"):
        return "a text became markup"
    if axe:
        browser.evaluate(axe)
        browser.evaluate("document.querySelector('details').open = true")
        rules = browser.evaluate("axe.run().then(r => [r.passes.length, ...r.violations.map(v => v.id)].join(' '))")
        if not (rules or "").isdigit():
            return f"accessibility: {rules}"
    return ""


def problem_of(browser, text, expected, prompt, axe):
    # Bytes that are not UTF-8 become U+FFFD at each step, not over the whole text; the last character may be cut off.
    text, whole = text.replace("\ufffd", ""), expected.decode(errors="replace").replace("\ufffd", "")
    if not text or not whole.startswith(text) or len(whole) > len(text) + 4:
        return f"wrote {text[:60]!r}, not {expected[:60]!r}"
    if browser.evaluate("document.querySelector('.prompt').textContent") != prompt:
        return "the prompt is not shown as it is"
    for selector in HOSTILE:  # after each token was pointed at
        browser.evaluate(f"""for (const token of document.querySelector('.output > span:last-child').children) {{
                               token.dispatchEvent(new PointerEvent('pointerover', {{bubbles: true}}));
                               if (document.querySelector('.side bdi *')) break; }}""")
        if browser.evaluate(f"document.querySelectorAll({json.dumps(selector)}).length"):
            return f"a text became markup: {selector}"
    return page_problem(browser, axe)


def buttons(browser):
    """Presses the buttons and keys of the open page. Returns what went wrong."""
    press = "document.querySelectorAll('button')[{}].click()"
    usable = "[...document.querySelectorAll('button')].map(b => b.getAttribute('aria-disabled')).join()"
    key = "document.querySelector('{}').dispatchEvent(new KeyboardEvent('keydown', {{key: '{}', ctrlKey: {}, bubbles: true}}))"
    length = "document.querySelector('.output > span:last-child').textContent.length"
    endless = "document.querySelector('#tokens').max = 1e9; document.querySelector('#tokens').value = 1e9; "
    steps = ((endless + key.format("#prompt", "Enter", "true"),
              "Writing", "true,false,true"),
             (key.format("body", "Escape", "false"), "Stopped", "false,true,false"),
             (press.format(2), "Writing", "true,false,true"), (press.format(1), "Stopped", "false,true,false"),
             ("document.querySelector('#tokens').value = ''; " + press.format(0), "Stopped", "false,true,false"))
    lengths = []
    for script, state, enabled in steps:
        browser.evaluate(script)
        browser.wait(f"{STATE}.startsWith('{state}')", 10)
        if browser.evaluate(usable) != enabled:
            return f"after {script}: aria-disabled {browser.evaluate(usable)}"
        browser.wait(f"{length} > {lengths[-1] if state == 'Writing' and len(lengths) > 1 else 0}", 10)
        lengths.append(browser.evaluate(length))
    return "" if lengths[3] > lengths[1] and browser.evaluate("document.querySelector('details').open") else f"{lengths}"


def damaged(browser, page, directory):
    html, problem = page.read_bytes(), ""
    generator = random.Random(1)
    begin, copy = html.index(b"<style"), directory / "damaged.html"
    for i in range(20):
        at = generator.randrange(begin, len(html) - 40)
        byte = bytes([html[at] ^ 1])
        copy.write_bytes(html[:at] if i % 2 else html[:at] + byte + html[at + 1:])
        browser.open(copy.as_uri())
        text = browser.wait("document.readyState == 'complete' && document.body.textContent.slice(-200)")
        if browser.evaluate("document.querySelector('#damaged')?.checkVisibility({visibilityProperty: true})"):
            continue
        problem = f"with byte {at} {'cut off' if i % 2 else 'changed'} it shows: {text}"
        break
    copy.unlink()
    report("damaged copies say so", problem)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("browser")
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--axe", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--pictures", action="store_true")
    args = parser.parse_args()
    browser = Browser(args.browser)
    try:
        for i, path in enumerate(sorted(args.directory.resolve().glob("*.prompt"))):
            browser.look(*((900, False), (390, True), (1200, True), (390, False))[i % 4])
            browser.messages.clear()
            prompt = path.read_text(encoding="utf-8")
            text, ready, first = write(browser, path.with_suffix(".html"), prompt)
            problem = problem_of(browser, text, path.with_suffix(".txt").read_bytes(), prompt,
                                 args.axe.read_text(encoding="utf-8") if args.axe else "")
            if args.pictures:
                browser.evaluate(POINT)
                path.with_suffix(".png").write_bytes(base64.b64decode(browser.picture()))
            report(f"{args.browser}: {path.stem}", problem, f" (ready after {ready:.2f} s, first token {first:.2f} s)")
            if path.stem.startswith("byte"):
                report(f"{args.browser}: buttons and keys", buttons(browser))
        for said in sorted(args.directory.resolve().glob("*.said")):
            browser.messages.clear()
            axe = args.axe.read_text(encoding="utf-8") if args.axe else ""
            report(f"{args.browser}: {said.stem}", talk(browser, said, axe, args.pictures))
        damaged(browser, path.with_suffix(".html"), args.directory.resolve())
    finally:
        browser.process.terminate()
        browser.process.wait()


if __name__ == "__main__":
    main()
