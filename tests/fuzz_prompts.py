#!/usr/bin/env python3
"""Gives corrupted lines to `./generate --prompts`; each but a blank one must be answered with one JSON object.

    tests/fuzz_prompts.py GENERATE RUN [LINES=2000] [SEED=1]

Prints how many lines were answered and how many rejected. If any line is left over, exit status 1 and the reason.
"""

import json
import random
import re
import subprocess
import sys

VALID = [b'"Once upon a time"', b'{"prompt": "a", "n": 2, "max_tokens": 1, "temp": 0.5, "top_k": 3, "top_p": 0.9, "min_p": 0.1}',
         b'{"id": {"a": [1, null, true, "\\u00e9\\ud83d\\ude00"]}, "prompt": "\\u0000x", "stop": ["a", "bc"], "seed": 7}',
         b'{"prompt": "the", "id": null, "n": null, "max_tokens": 1, "stop": null, "temp": null}', b" \t\r",
         b'{"prompt": "the", "logprobs": 3, "score": true, "stop": "e", "max_tokens": 2}', b'{"prompt": "", "seed": 9000000000000000000}',
         b'{"prompt": "a", "max_tokens": 3, "repeat_penalty": 1.5, "repeat_last_n": 9, "presence_penalty": -1, "frequency_penalty": 0.5}']
WORDS = [b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"null", b"-1", b"1e999", b"1e-400", b"0.1", b"99999999999999999999", b"NaN", b"true",
         b'"prompt"', b'"n"', b'"max_tokens"', b'"stop"', b'"seed"', b"\\ud800", b"\\u0000", b"\xff", b"\xc3", b"\xed\xa0\x80", b" " * 50,
         b"[" * 40, b'{"a":' * 40, b"\x00", b"\r", b"\t"]

SLOW = re.compile(rb'"(n|max_tokens)"[^,}]*[0-9]{3}')  # many texts, or long ones: not what is looked for


def mutate(random_, line):
    line = bytearray(line)
    for _ in range(random_.randint(0, 4)):
        at, to = random_.randint(0, len(line)), random_.randint(0, len(line))
        kind = random_.randint(0, 4)
        if kind == 0 and line:
            line[at % len(line)] = random_.randint(0, 255)
        elif kind == 1:
            del line[min(at, to):min(max(at, to), min(at, to) + 8)]
        elif kind == 2:
            line[at:at] = random_.choice(WORDS)
        elif kind == 3:
            line[at:at] = line[min(at, to):max(at, to)]
        else:
            line = line[:at] + bytearray(random_.choice(VALID))[to % 40:]
    line = bytes(line).replace(b"\n", b" ")
    return random_.choice(VALID) if SLOW.search(line) else line


def main():
    generate, run, lines, seed = sys.argv[1], sys.argv[2], *(int(x) for x in (sys.argv[3:] + ["2000", "1"][len(sys.argv) - 3:]))
    random_ = random.Random(seed)
    given = [mutate(random_, random_.choice(VALID)) for _ in range(lines)]
    done = subprocess.run([generate, run, "--prompts", "-", "-n", "1", "--quiet"], input=b"".join(line + b"\n" for line in given),
                          capture_output=True, check=False)
    given = [line for line in given if line.strip(b" \t\r")]
    answers = [json.loads(line) for line in done.stdout.decode("utf-8").split("\n")[:-1]]
    refused = sum("error" in answer for answer in answers)
    print(f"{len(answers) - refused} answered, {refused} refused")
    if len(answers) != len(given) or done.returncode not in (0, 3) or (done.returncode == 3) != (refused > 0):
        sys.exit(f"{len(given)} lines, {len(answers)} answers, status {done.returncode}: {done.stderr.decode('utf-8', 'replace')[-2000:]}")
    for line, answer in zip(given, answers):
        if "error" in answer:
            assert answer["error"]["message"] and answer["error"]["type"] == "invalid_request_error", (line, answer)
        else:
            asked = json.loads(line.decode("utf-8"), strict=False)
            prompt = asked if isinstance(asked, str) else asked["prompt"]
            assert answer["prompt"] == prompt and (isinstance(asked, str) or answer.get("id") == asked.get("id")), (line, answer)


if __name__ == "__main__":
    main()
