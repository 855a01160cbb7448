#!/bin/sh
# Tests build/talks, the conversations of the demo: their answers, and how they are counted. See tests/program_helpers.sh.
# shellcheck disable=SC2154 # of the helpers
set -u
. tests/program_helpers.sh
talks=$build/talks

"$talks" --self-check >out
check "the grammar is unambiguous" grep -q '^self-check passed' out
"$talks" --lines 4000 -o train.jsonl --test test.jsonl --test-lines 1000 --report report.json
"$talks" --lines 4000 --seed 2 -o other.jsonl --quiet
"$talks" --lines 20 --test again.jsonl --test-lines 1000 --quiet >few.jsonl
check "same seed, same lines" sh -c "head -n 20 train.jsonl | cmp - few.jsonl && cmp test.jsonl again.jsonl"
check "another seed, other lines" sh -c "! cmp -s train.jsonl other.jsonl"

# What must be known to answer is read from the messages, by other means than the program's.
cat >read.py <<'E2'
import json, math, re, sys
from collections import Counter, defaultdict

def lines(name): return [json.loads(line) for line in open(name)]

def facts(messages):
    """The user's name and favorite thing, as far as they are known."""
    said = [m["content"] for m in messages if m["role"] == "user"]
    name = re.search(r"(?:I am|My name is|They call me) (\w+)\.$", said[0]).group(1)
    thing = re.search(r"^My favorite (\w+) is (?:my |the )?(\w+)\.$", said[1]) if len(said) > 1 else None
    return name, thing and thing.groups()

def hero(messages):
    for m in messages:
        found = re.search(r"(?:You are|I am) (\w+)\.$", m["content"])
        if m["role"] != "user" and found: return found.group(1)

def shape():
    for talk in lines("train.jsonl"):
        roles = [m["role"] for m in talk["messages"]]
        first = roles[0] == "system"
        assert set(talk) == {"messages"} and roles[first:] == ["user", "assistant"] * ((len(roles) - first) // 2), roles
    for talk in lines("test.jsonl"):
        assert talk["messages"][-1]["role"] == "user" and talk["answer"]
    assert len(lines("train.jsonl")) == 4000 and len(lines("test.jsonl")) == 1000

def held_out():
    whole = [t for t in lines("test.jsonl") if facts(t["messages"])[1]]
    asked, learned = ({facts(t["messages"]) for t in of} for of in (whole, lines("train.jsonl") + lines("other.jsonl")))
    assert len(asked) > 50 and len(learned) > 700 and not asked & learned, (len(asked), len(learned))

def entropy():
    """The conditional entropy of the answers, estimated by counting: given the question, the facts and the character."""
    counts, size = defaultdict(Counter), 0
    for talk in lines("train.jsonl"):
        messages = talk["messages"]
        for i, m in enumerate(messages):
            if m["role"] != "assistant": continue
            before, question = messages[:i], messages[i - 1]["content"]
            name, thing = facts(before)
            kind = re.sub(r"^My favorite (\w+) is.*", r"\1", re.sub(r"^.*[,:] ", "", question)) if thing else "hello"
            answer = m["content"].replace(name, "NAME")
            if thing: answer = re.sub(rf"\b{thing[1]}\b", "THING", answer)
            counts[kind, hero(before)][answer] += 1
            size += len(m["content"].encode())
    bits = -sum(n * math.log2(n / sum(c.values())) for c in counts.values() for n in c.values())
    report = json.load(open("report.json"))
    assert report["answer_bytes"] == size and report["answers"] == sum(sum(c.values()) for c in counts.values())
    assert abs(bits / report["answer_bits"] - 1) < 0.01, (bits, report)
    assert abs(report["bits_per_byte"] - report["answer_bits"] / size) < 1e-9
    assert abs(report["test_bits_per_byte"] / report["bits_per_byte"] - 1) < 0.05

def alter():
    """Answers with another name, thing or character, an end that comes early or late, and the answer to another line."""
    tests, out = lines("test.jsonl"), []
    for i, t in enumerate(tests):
        name, thing = facts(t["messages"])
        answer, character = t["answer"], hero(t["messages"])
        wrong = [answer + " ", answer[:-1], answer + "\n", answer + "\nU Bye!", "", answer.lower()]
        if name in answer: wrong.append(answer.replace(name, "Ben" if name == "Anna" else "Anna"))
        if thing and thing[1] in answer.split(): wrong.append(answer.replace(thing[1], "stone"))
        if thing and re.search(rf"\b{thing[1]}\.$", answer):
            same = [x for x in ("red", "blue") if thing[0] == "color"] + [x for x in ("jam", "rice") if thing[0] == "food"]
            wrong += [answer.replace(thing[1], x) for x in same if x != thing[1]]
        if character and character in answer: wrong.append(answer.replace(character, "Gus" if character == "Pip" else "Pip"))
        out += [json.dumps({"messages": t["messages"], "answer": w}) for w in wrong if w != answer]
    print("\n".join(out))

globals()[sys.argv[1]]()
E2
check "lines have the form of chats" python3 read.py shape
check "names and things of the test set are new, for every seed" python3 read.py held_out
check "the entropy is that of counts" python3 read.py entropy

answers=$(grep -o '"assistant"' train.jsonl | wc -l)
check "all answers of the training set are right" test "$("$talks" --check train.jsonl)" = "{\"answers\": $answers, \"right\": $answers}"
check "and of the test set" test "$("$talks" --check test.jsonl)" = '{"answers": 1000, "right": 1000}'
if has python3 "altered answers"; then
  python3 read.py alter >wrong.jsonl
  check "altered answers are wrong" test "$("$talks" --check wrong.jsonl)" = "{\"answers\": $(wc -l <wrong.jsonl), \"right\": 0}"
fi
hello='{"role": "user", "content": "Hi! I am Ida."}'
right() { # right ANSWER: whether it is a right one to Ida
  printf '{"messages": [%s], "answer": "%s"}\n' "$hello" "$1" >one.jsonl
  test "$("$talks" --check one.jsonl)" = '{"answers": 1, "right": 1}'
}
check "every right answer counts" right "Welcome, Ida! I am Rufus."
check "not only one" right "Hello, Ida! I am Milo."
wrong() { ! right "$1"; }
check "a character of no story is wrong" wrong "Hello, Ida! I am Max."
completion() { # completion ANSWER REASON
  printf '{"messages": [%s], "choices": [{"message": {"content": "%s"}, "finish_reason": "%s"}]}\n' "$hello" "$1" "$2" >one.jsonl
  "$talks" --check one.jsonl
}
check "a chat completion" test "$(completion "Hello, Ida! I am Milo." stop)" = '{"answers": 1, "right": 1}'
check "one that does not end" test "$(completion "Hello, Ida! I am Milo." length)" = '{"answers": 1, "right": 0}'
check "a wrong one" test "$(completion "Hello, Ida! I am Max." stop)" = '{"answers": 1, "right": 0}'
long=$(awk 'BEGIN { for (i = 0; i < 3000; i++) printf "a" }')
printf '{"messages": [%s], "answer": "%s"}\n' "$hello" "$long" >one.jsonl
check "a long answer is wrong" test "$("$talks" --check one.jsonl)" = '{"answers": 1, "right": 0}'
printf '\n{"messages": [{"role": "user"}], "answer": "Hello"}\n' >bad.jsonl
refused "a message without content" 3 "line 2: message 1 needs a role" "$talks" --check bad.jsonl
echo '{"messages": "Hello", "answer": "Hello"}' >bad.jsonl
refused "messages of another form" 3 'line 1 needs "messages"' "$talks" --check bad.jsonl
echo '{"messages": []}' >bad.jsonl
refused "no answers" 3 "has no answers" "$talks" --check bad.jsonl
echo 'Hello' >bad.jsonl
refused "no JSON" 3 "line 1" "$talks" --check bad.jsonl
refused "no file" 3 "nowhere" "$talks" --check nowhere.jsonl
refused "one file for both sets" 2 "same file" "$talks" -o a.jsonl --test a.jsonl
refused "no place to write" 7 "nowhere" "$talks" -o nowhere/a.jsonl

echo "done"
