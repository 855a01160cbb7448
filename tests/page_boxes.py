"""Checks that no text of an HTML page overlaps: python3 tests/page_boxes.py PAGE...

Loads each PAGE in Chromium at several widths and prints a line for each pair of overlapping boxes, each broken name and
each page that is wider than the window. Exit status 1 if there is one, 77 if Chromium is missing."""
import html, json, os, re, shutil, subprocess, sys, tempfile

WIDTHS = [320, 390, 768, 1200, 1600]
SCRIPT = """
const found = [];
const text = e => e.textContent.trim().slice(0, 40);
function lines(e) { // of text, in an element
  const range = document.createRange(); range.selectNodeContents(e);
  return new Set([...range.getClientRects()].filter(r => r.width > 0).map(r => Math.round(r.bottom))).size;
}
const box = e => e.getBoundingClientRect();
function overlap(a, b) {
  const p = box(a), q = box(b), slack = 0.5;
  return p.width * p.height * q.width * q.height > 0 && p.left + slack < q.right && q.left + slack < p.right &&
    p.top + slack < q.bottom && q.top + slack < p.bottom;
}
function apart(where, elements) {
  elements.forEach((a, i) => elements.slice(i + 1).forEach(b => {
    if (overlap(a, b)) found.push(where + ': "' + text(a) + '" overlaps "' + text(b) + '"');
  }));
}
function look(page, width) {
  if (page.documentElement.scrollWidth > width) found.push(width + ': is ' + page.documentElement.scrollWidth + ' wide');
  for (const figure of page.querySelectorAll('figure')) {
    const picture = figure.querySelector('svg');
    apart(width, [...figure.querySelectorAll('figcaption p, figcaption li'), picture]);
    const words = [...picture.querySelectorAll('text')];
    apart(width, words);
    for (const word of words)
      if (box(word).left < box(picture).left - 1 || box(word).right > box(picture).right + 1 || box(word).bottom > box(picture).bottom + 1)
        found.push(width + ': "' + text(word) + '" is cut off');
  }
  for (const name of page.querySelectorAll('.settings dt, tbody th, .option'))
    if (lines(name) > 1) found.push(width + ': "' + text(name) + '" is broken');
  for (const row of page.querySelectorAll('dl > div, .legend')) apart(width, [...row.children]);
  for (const map of page.querySelectorAll('.layer')) apart(width, [...map.children]);
}
(async () => {
  for (const width of WIDTHS) {
    const frame = document.createElement('iframe');
    frame.style = 'border:0;height:900px;width:' + width + 'px';
    frame.srcdoc = PAGE;
    document.body.append(frame);
    await new Promise(done => frame.onload = done);
    for (const open of [false, true]) {
      frame.contentDocument.querySelectorAll('details').forEach(d => d.open = open);
      look(frame.contentDocument, width);
    }
    frame.remove();
  }
  document.body.innerHTML = '<pre id="found"></pre>';
  document.getElementById('found').textContent = found.concat('looked').join('\\n');
})();
"""


def look(browser, path, folder):
    page = open(path, encoding="utf-8").read()
    script = SCRIPT.replace("WIDTHS", json.dumps(WIDTHS)).replace("PAGE", json.dumps(page).replace("</", "<\\/"))
    wrapper = os.path.join(folder, "wrapper.html")
    with open(wrapper, "w", encoding="utf-8") as file:
        file.write("<!DOCTYPE html><meta charset=utf-8><body><script>" + script + "</script>")
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--user-data-dir=" + os.path.join(folder, "profile"),
               "--window-size=1700,1000", "--virtual-time-budget=60000", "--dump-dom", "file://" + wrapper]
    dom = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False).stdout
    result = re.search('<pre id="found">(.*?)</pre>', dom, re.S)
    return html.unescape(result.group(1)).split("\n") if result else ["Chromium shows nothing"]


def main(paths):
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if not browser: return 77
    bad = 0
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        for path in paths:
            lines = look(browser, path, folder)
            if lines[-1] == "looked": lines.pop()
            for line in lines: print(f"{path}: {line}")
            bad += len(lines)
    return 1 if bad else 0


if __name__ == "__main__": sys.exit(main(sys.argv[1:]))
