#!/bin/sh
# Tests ./generate --dump: what a model computes while it reads a text. See tests/program_helpers.sh.
# shellcheck disable=SC2154 # of the helpers
# shellcheck disable=SC2016 # what sh -c is given expands there
set -u
. tests/program_helpers.sh

"$build/stories" --bytes 20000 --seed 3 -o text.txt --report report.json 2>/dev/null
small="--heads 2 --dim 16 --ctx 24 --batch 2 --steps 8 --sample-tokens 0 --eval-every 0 --quiet --threads 1 $varied"
make_run() { # make_run TEXT RUN OPTION...
  text=$1 run=$2
  shift 2
  # shellcheck disable=SC2086 # words
  $train "$text" $small "$@" --out "$run" 2>/dev/null
}
make_run text.txt lfm2.run --layers 3 --mixer CA --kv-heads 1 --pack stream --tokenizer byte
make_run text.txt gpt2.run --layers 2 --arch gpt2 --pack stream --tokenizer byte
make_run text.txt after.run --layers 2 --arch original --pack stream --tokenizer byte
make_run text.txt llama.run --layers 1 --arch llama --pack stream --tokenizer byte
make_run text.txt docs.run --layers 1 --tokenizer bpe --vocab-size 300 --pack docs
head -c 60 text.txt >read.txt
head -c 24 text.txt >window.txt

# ---- files ----
dump() { $generate "$1" --device cpu --dump "$2" -f "$3" --threads 1; } # dump RUN FILE TEXT
dump lfm2.run lfm2.safetensors read.txt 2>err
check "notes" sh -c 'grep -q "^note: hidden states of 60 tokens are in lfm2.safetensors ([0-9.]* KiB)" err && grep -q "in windows of 24 tokens" err'
dump lfm2.run one.safetensors window.txt 2>err
check "a text of one window" sh -c 'test -s one.safetensors && ! grep -q "in windows" err'
dump lfm2.run again.safetensors read.txt 2>/dev/null
check "the same file again" cmp lfm2.safetensors again.safetensors
$generate lfm2.run --device cpu --dump again.safetensors -p "$(cat read.txt)" 2>/dev/null
check "the same of -p" cmp lfm2.safetensors again.safetensors
$generate lfm2.run --device cpu --dump again.safetensors -f - --threads 2 <read.txt 2>/dev/null
check "the same of standard input, with two threads" cmp lfm2.safetensors again.safetensors
$generate docs.run --device cpu --dump docs.safetensors 2>/dev/null
check "of no text: the token that starts a document" test -s docs.safetensors

refused "another ending" 2 "must end in .safetensors" "$generate" lfm2.run -p x --dump x.txt
cp read.txt read.safetensors
refused "in place of the text" 2 "would replace a file that is read" "$generate" lfm2.run -f read.safetensors --dump read.safetensors
refused "in place of the model" 2 "directory of a model" "$generate" lfm2.run -p x --dump lfm2.run/model.safetensors
refused "no place to write" 7 "nowhere" "$generate" lfm2.run -p x --dump nowhere/x.safetensors
refused "a full disk" 7 "cannot write" sh -c 'ulimit -f 64; exec "$1" lfm2.run -f text.txt --dump new.safetensors' - "$generate"
refused "a full disk, in place of a file" 7 "cannot write" sh -c 'ulimit -f 64; exec "$1" lfm2.run -f text.txt --dump one.safetensors' - "$generate"
refused "no file to read" 3 "cannot read" "$generate" lfm2.run -f nothing.txt --dump x.safetensors
refused "two works" 2 "only one of" "$generate" lfm2.run -p x --lens --dump x.safetensors
refused "generated text" 2 "-n does not go with --dump" "$generate" lfm2.run -p x -n 3 --dump x.safetensors
refused "a shorter text" 2 "--truncate-prompt does not go with --dump" "$generate" lfm2.run -p x --truncate-prompt left \
  --dump x.safetensors
i=0
while [ $i -lt 60 ]; do printf '%d\t%d\n' $i $i; i=$((i + 1)); done >pairs.tsv
make_run pairs.tsv pairs.run --layers 1 --arch original
refused "an encoder" 2 "for models without an encoder" "$generate" pairs.run -p one --dump x.safetensors

has python3 "the numbers in a dump" || { echo "done"; exit; }

# ---- numbers ----
for run in lfm2 llama gpt2 after; do
  dump $run.run $run.safetensors read.txt 2>/dev/null
  $generate $run.run --device cpu --score read.txt --quiet >$run.json
done
for first in 0 24 48; do
  tail -c +$((first + 1)) read.txt | head -c 24 >part.txt
  dump lfm2.run part$first.safetensors part.txt 2>/dev/null
done
cat >dump.py <<'EOF'
import array, json, math, struct

def tensors(path):
    """{name: rows}, and the metadata; every byte of the file belongs to one tensor."""
    data = open(path, "rb").read()
    size = struct.unpack("<Q", data[:8])[0]
    header, end, found = json.loads(data[8:8 + size]), 0, {}
    metadata = header.pop("__metadata__")
    for name, t in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        (first, last), shape = t["data_offsets"], t["shape"]
        assert first == end and last - first == math.prod(shape) * {"I64": 8, "F32": 4}[t["dtype"]], name
        values, end = array.array({"I64": "q", "F32": "f"}[t["dtype"]], data[8 + size + first:8 + size + last]), last
        found[name] = [values[i:i + shape[1]] for i in range(0, len(values), shape[1])] if len(shape) == 2 else list(values)
    assert 8 + size + end == len(data)
    return found, metadata

def product(x, weight, bias=None):
    return [sum(a * b for a, b in zip(x, row)) + (bias[k] if bias else 0) for k, row in enumerate(weight)]

def near(got, want):
    scale = max(abs(y) for row in want for y in row)
    return len(got) == len(want) and all(abs(x - y) < 1e-5 * scale for p, q in zip(got, want) for x, y in zip(p, q))

def add(*streams):
    return [[sum(numbers) for numbers in zip(*rows)] for rows in zip(*streams)]

def neighbors(items):
    """Two heads of 8 in the order of a class that rotates neighboring numbers."""
    return [items[8 * head + 4 * (i % 2) + i // 2] for head in range(2) for i in range(8)]

def find(weights, ending):
    return next(w for name, w in weights.items() if name.endswith(ending))
EOF
check "tensors, shapes and metadata" python3 - <<'EOF'
from dump import *
found, metadata = tensors("lfm2.safetensors")
text = open("read.txt", "rb").read()
assert found["tokens"] == list(text)
ffn = len(find(tensors("lfm2.run/model.safetensors")[0], "layers.0.feed_forward.w1.weight"))
wanted = {"head_input": 16, "queries.1": 16, "keys.1": 8, "values.1": 8, "attention_output.1": 16,
          "convolution_output.0": 16, "convolution_output.2": 16, **{f"residual.{i}": 16 for i in range(4)},
          **{f"mlp_hidden.{i}": ffn for i in range(3)}, **{f"mlp_output.{i}": 16 for i in range(3)}}
assert set(found) == {"tokens", *wanted}, sorted(found)
for name, width in wanted.items():
    assert len(found[name]) == len(text) and {len(row) for row in found[name]} == {width}, name
assert metadata["model"] == "lfm2.run" and metadata["window"] == "24" and metadata["compute_dtype"] == "f32", metadata
assert metadata["inkling"][0].isdigit() and metadata["format"] == "pt", metadata
EOF
check "the residual stream is the sum of the branches" python3 - <<'EOF'
from dump import *
for name, mixers in ("lfm2", "CAC"), ("llama", "A"), ("gpt2", "AA"):
    found, _ = tensors(f"{name}.safetensors")
    for i, mixer in enumerate(mixers):
        mixed = found[f"convolution_output.{i}" if mixer == "C" else f"attention_output.{i}"]
        assert near(add(found[f"residual.{i}"], mixed, found[f"mlp_output.{i}"]), found[f"residual.{i + 1}"]), (name, i)
EOF
check "queries, keys, values, and the output of each MLP are products with its input" python3 - <<'EOF'
from dump import *
for run, layer, norm, eps, down in (("lfm2", 1, "operator_norm", "norm_eps", "feed_forward.w2"),
                                    ("llama", 0, "input_layernorm", "rms_norm_eps", "mlp.down_proj")):
    found, weights = tensors(f"{run}.safetensors")[0], tensors(f"{run}.run/model.safetensors")[0]
    of_layer = lambda name: weights[f"model.layers.{layer}.{name}.weight"]
    rows = [product(x, of_layer(down)) for x in found[f"mlp_hidden.{layer}"]]
    assert near(rows, found[f"mlp_output.{layer}"]), run
    epsilon, normed = json.load(open(f"{run}.run/config.json"))[eps], []
    for x in found[f"residual.{layer}"]:
        rms = math.sqrt(sum(a * a for a in x) / len(x) + epsilon)
        normed.append([a / rms * s for a, s in zip(x, of_layer(norm))])
    for name in "queries", "keys", "values":
        rows = [product(x, of_layer(f"self_attn.{name[0]}_proj")) for x in normed]
        assert near(rows, found[f"{name}.{layer}"]), (run, name)
EOF
check "each window is a text of its own" python3 - <<'EOF'
from dump import *
whole, _ = tensors("lfm2.safetensors")
for first in 0, 24, 48:
    for name, rows in tensors(f"part{first}.safetensors")[0].items():
        assert whole[name][first:first + 24] == rows, (first, name)
EOF
# Helium rotates neighboring numbers of a head; in LLaMA they are half a head apart.
cp -r llama.run helium.run
check "a class with another order of queries and keys: a model" python3 - <<'EOF'
from dump import *
config = json.load(open("llama.run/config.json"))
json.dump({**config, "model_type": "helium", "architectures": ["HeliumForCausalLM"]}, open("helium.run/config.json", "w"))
weights, metadata = tensors("llama.run/model.safetensors")
header, data = {"__metadata__": metadata}, b""
for name, rows in weights.items():
    rows = neighbors(rows) if name.endswith(("q_proj.weight", "k_proj.weight")) else rows
    matrix = isinstance(rows[0], array.array)
    numbers = b"".join(row.tobytes() for row in rows) if matrix else array.array("f", rows).tobytes()
    header[name] = {"dtype": "F32", "shape": [len(rows), len(rows[0])] if matrix else [len(rows)],
                    "data_offsets": [len(data), len(data) + len(numbers)]}
    data += numbers
text = json.dumps(header).encode()
open("helium.run/model.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + data)
EOF
dump helium.run helium.safetensors read.txt 2>/dev/null
check "a class with another order of queries and keys" python3 - <<'EOF'
from dump import *
llama, helium = tensors("llama.safetensors")[0], tensors("helium.safetensors")[0]
for name in set(llama) - {"tokens"}:
    rows = map(neighbors if name in ("queries.0", "keys.0") else list, llama[name])
    assert list(map(list, helium[name])) == list(rows), name
EOF
# val_loss is that of windows that do not overlap, too.
check "the loss that the head makes of its input is val_loss" python3 - <<'EOF'
from dump import *
for name in "lfm2", "llama", "gpt2", "after":
    found, _ = tensors(f"{name}.safetensors")
    weights, _ = tensors(f"{name}.run/model.safetensors")
    head = weights.get("lm_head.weight") or find(weights, "wte.weight" if name == "gpt2" else "embed_tokens.weight")
    bias = weights.get("lm_head.bias")
    score, nats = json.load(open(f"{name}.json")), []
    for x, target in zip(found["head_input"], found["tokens"][1:] + [256]):  # the file ends with the end token
        logits = product(x, head, bias)
        most = max(logits)
        nats.append(math.log(sum(math.exp(z - most) for z in logits)) + most - logits[target])
    assert abs(sum(nats) / len(nats) - score["val_loss"]) < 1e-5, name
EOF
echo "done"
