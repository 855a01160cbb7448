#!/usr/bin/env python3
"""Checks that other programs can use what ./generate --export writes.

    scripts/measure/check_export.py RUN [--generate ./generate]

Needs PyTorch, transformers, huggingface_hub and lm-eval. RUN must have no encoder. It is exported in f32 and in bf16.
transformers must load both exports and continue a prompt as ./generate does; huggingface_hub must read the model card;
and lm-eval must run a task on the export: choose the more likely of two continuations of the run's sample.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

import torch
import transformers
from huggingface_hub import ModelCard

TASK = """task: mini
dataset_path: json
dataset_kwargs:
  data_files:
    test: {path}
output_type: multiple_choice
test_split: test
doc_to_text: "{{{{q}}}}"
doc_to_choice: "{{{{c}}}}"
doc_to_target: "{{{{a}}}}"
metric_list:
  - metric: acc
"""


def check_text(generate, folder, model, tokenizer):
    prompt = "The "
    ids = tokenizer(prompt, return_tensors="pt").input_ids
    with torch.no_grad():
        out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=20, do_sample=False,
                             pad_token_id=model.config.eos_token_id)
    theirs = tokenizer.decode(out[0, ids.shape[1]:], skip_special_tokens=True, clean_up_tokenization_spaces=False)
    ours = subprocess.run([generate, folder, "-p", prompt, "--greedy", "-n", "20", "--quiet"], check=True,
                          capture_output=True).stdout.decode(errors="replace")
    return theirs == ours


def check_lm_eval(folder, scratch, text):
    questions = [dict(q=text[i:i + 12], c=[text[i + 12:i + 18], "\x07\x07\x07\x07\x07\x07"], a=0) for i in range(0, 60, 6)]
    with open(scratch + "/mini.jsonl", "w", encoding="utf-8") as stream:
        stream.writelines(json.dumps(question) + "\n" for question in questions)
    with open(scratch + "/mini.yaml", "w", encoding="utf-8") as stream:
        stream.write(TASK.format(path=scratch + "/mini.jsonl"))
    done = subprocess.run([sys.executable, "-m", "lm_eval", "--model", "hf", "--model_args", f"pretrained={folder}",
                           "--tasks", scratch + "/mini.yaml", "--device", "cpu"], capture_output=True, check=False)
    found = re.search(r"\|acc\s*\|[^|]*\|\s*([\d.]+)", done.stdout.decode())
    return float(found.group(1)) if found else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--generate", default="./generate")
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    failed = False
    with tempfile.TemporaryDirectory() as scratch:
        for kind, dtype in (("f32", torch.float32), ("bf16", torch.bfloat16)):
            folder = os.path.join(scratch, kind)
            subprocess.run([options.generate, options.run, "--export", folder, "--export-type", kind, "-n", "200", "--quiet"],
                           check=True)
            model = transformers.AutoModelForCausalLM.from_pretrained(folder)
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
            right = model.dtype == dtype and check_text(options.generate, folder, model.float(), tokenizer)
            card = ModelCard.load(folder + "/README.md")
            sample = card.text.split("## Sample")[1].split("## Use")[0].split(":\n\n", 1)[1].replace("\n    ", "\n").strip()
            right = right and card.data.pipeline_tag == "text-generation" and "inkling" in card.data.tags
            accuracy = check_lm_eval(folder, scratch, sample)
            right = right and accuracy is not None and accuracy > 0.8
            failed |= not right
            print(f"{kind}: {model.dtype}, tags {card.data.tags}, lm-eval {accuracy}: {'right' if right else 'WRONG'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
