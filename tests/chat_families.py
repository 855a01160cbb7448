"""The chat templates of the families that Inkling knows, as their models have them, a small model with each of them, and
random conversations: for chat.py, llamacpp_chat.py and ollama_chat.py. Importing this fails without transformers."""

import os
import random
import warnings

os.environ["TRANSFORMERS_VERBOSITY"] = "error"
os.environ["HF_HUB_OFFLINE"] = "1"
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers.utils import logging
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

warnings.filterwarnings("ignore")
logging.disable_progress_bar()
WORDS = "the cat sat on a mat and went home where are you now fine thanks Ümläut 猫 12 (x)".split()


def content(rng, ragged):
    text = " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, 9)))
    if ragged and rng.random() < 0.3:
        text = rng.choice(["\n", "\n\n", " ", "  ", "\t"]) + text
    if ragged and rng.random() < 0.3:
        text += rng.choice(["\n", "\n\n", " ", ".\n"])
    return text


def conversations(seed, count, system=True, ragged=True):
    """Lists of messages; all words are in the first one."""
    rng = random.Random(seed)
    made = []
    for i in range(count):
        messages = [{"role": "system", "content": content(rng, ragged)}] if system and rng.random() < 0.4 else []
        for _ in range(rng.randint(1, 4)):
            messages.append({"role": "user", "content": content(rng, ragged)})
            messages.append({"role": "assistant", "content": content(rng, ragged)})
        if i == 0:
            messages[-1]["content"] = " ".join(WORDS)
        if i % 10 == 9:
            messages.append({"role": "user", "content": "and then"})
        made.append(messages)
    return made


DATE = {"date_string": "26 Jul 2024"}  # Llama 3.2 has the date of the day without it


def text_of(tokenizer, messages, **options):
    return tokenizer.apply_chat_template(messages, tokenize=False, **DATE, **options)


def ids_of(tokenizer, messages, **options):
    out = tokenizer.apply_chat_template(messages, tokenize=True, **DATE, **options)
    return out if isinstance(out, list) else out["input_ids"]


# ---- models ----

CHATML = ("{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' "
          "+ '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")


def with_default(prompt):
    return ("{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\n" + prompt + "<|im_end|>\n' }}{% endif %}"
            + CHATML)


QWEN3 = """{%- set ns = namespace(last=0) %}{%- for message in messages %}{%- if message.role == 'user' %}
{%- set ns.last = loop.index0 %}{%- endif %}{%- endfor %}{%- for message in messages %}
{%- if message.role != 'assistant' %}{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}
{%- else %}{%- set content = message.content %}{%- set reasoning_content = '' %}{%- if '</think>' in content %}
{%- set reasoning_content = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
{%- set content = content.split('</think>')[-1].lstrip('\n') %}{%- endif %}
{%- if loop.index0 > ns.last and (loop.last or reasoning_content) %}{{- '<|im_start|>assistant\n<think>\n' +
reasoning_content.strip('\n') + '\n</think>\n\n' + content + '<|im_end|>\n' }}
{%- else %}{{- '<|im_start|>assistant\n' + content + '<|im_end|>\n' }}{%- endif %}{%- endif %}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"""
LLAMA3 = ("{% for message in messages %}{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n"
          "\n' + message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token "
          "+ content %}{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>"
          "assistant<|end_header_id|>\n\n' }}{% endif %}")
LLAMA31 = ("{{- bos_token }}{%- if messages[0]['role'] == 'system' %}{%- set system_message = messages[0]['content']|"
           "trim %}{%- set messages = messages[1:] %}{%- else %}{%- set system_message = '' %}{%- endif %}"
           "{{- '<|start_header_id|>system<|end_header_id|>\n\n' }}{{- 'Cutting Knowledge Date: December 2023\n' }}"
           "{{- 'Today Date: 26 Jul 2024\n\n' }}{{- system_message }}{{- '<|eot_id|>' }}{%- for message in messages %}"
           "{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + "
           "'<|eot_id|>' }}{%- endfor %}{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant"
           "<|end_header_id|>\n\n' }}{%- endif %}")
LLAMA32 = ("{%- if not date_string is defined %}{%- if strftime_now is defined %}{%- set date_string = strftime_now('%d %b %Y') "
           "%}{%- else %}{%- set date_string = '26 Jul 2024' %}{%- endif %}{%- endif %}" +
           LLAMA31.replace("{{- 'Today Date: 26 Jul 2024\n\n' }}", "{{- 'Today Date: ' + date_string + '\n\n' }}"))
GEMMA = ("{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'assistant') %}{% set role = 'model' %}"
         "{% else %}{% set role = message['role'] %}{% endif %}{{ '<start_of_turn>' + role + '\n' + message['content'] "
         "| trim + '<end_of_turn>\n' }}{% endfor %}{% if add_generation_prompt %}{{'<start_of_turn>model\n'}}"
         "{% endif %}")
ZEPHYR = ("{% for message in messages %}\n{% if message['role'] == 'user' %}\n{{ '<|user|>\n' + message['content'] + "
          "eos_token }}\n{% elif message['role'] == 'system' %}\n{{ '<|system|>\n' + message['content'] + eos_token }}"
          "\n{% elif message['role'] == 'assistant' %}\n{{ '<|assistant|>\n'  + message['content'] + eos_token }}\n"
          "{% endif %}\n{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}")
MISTRAL = ("{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}{{ '[INST] ' + "
           "message['content'] + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ message['content'] + "
           "eos_token }}{% endif %}{% endfor %}")
SYSTEM = ("{%- if messages[0]['role'] == 'system' %}{%- set system_message = messages[0]['content'] %}"
          "{%- set loop_messages = messages[1:] %}{%- else %}{%- set loop_messages = messages %}{%- endif %}")
MISTRAL2 = (SYSTEM + "{{- bos_token }}{%- for message in loop_messages %}{%- if message['role'] == 'user' %}{%- if loop.first "
            "and system_message is defined %}{{- ' [INST] ' + system_message + '\n\n' + message['content'] + ' [/INST]' }}"
            "{%- else %}{{- ' [INST] ' + message['content'] + ' [/INST]' }}{%- endif %}{%- else %}"
            "{{- ' ' + message['content'] + eos_token}}{%- endif %}{%- endfor %}")
MISTRAL3 = (SYSTEM + "{{- bos_token }}{%- for message in loop_messages %}{%- if message['role'] == 'user' %}{%- if loop.last "
            "and system_message is defined %}{{- '[INST] ' + system_message + '\n\n' + message['content'] + '[/INST]' }}"
            "{%- else %}{{- '[INST] ' + message['content'] + '[/INST]' }}{%- endif %}{%- else %}"
            "{{- ' ' + message['content']|trim + eos_token}}{%- endif %}{%- endfor %}")
PHI3 = ("{% for message in messages %}{% if message['role'] == 'system' %}{{'<|system|>\n' + message['content'] + "
        "'<|end|>\n'}}{% elif message['role'] == 'user' %}{{'<|user|>\n' + message['content'] + '<|end|>\n'}}{% elif "
        "message['role'] == 'assistant' %}{{'<|assistant|>\n' + message['content'] + '<|end|>\n'}}{% endif %}{% endfor"
        " %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}")
PHI4 = ("{% for message in messages %}{{ '<|im_start|>' + message['role'] + '<|im_sep|>' + message['content'] + "
        "'<|im_end|>' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant<|im_sep|>' }}{% endif %}")
IM = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
HEADERS = ["<|begin_of_text|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>"]
FAMILIES = {  # template, special tokens, bos, eos, the text that ends a turn, whether there are system prompts
    "Qwen 3": (QWEN3, IM, None, "<|im_end|>", "<|im_end|>", True),
    "Qwen 2.5": (with_default("You are Qwen, created by Alibaba Cloud. You are a helpful assistant."), IM, None,
                 "<|im_end|>", "<|im_end|>", True),
    "Qwen 2": (with_default("You are a helpful assistant."), IM, None, "<|im_end|>", "<|im_end|>", True),
    "SmolLM 2": (with_default("You are a helpful AI assistant named SmolLM, trained by Hugging Face"), IM, None,
                 "<|im_end|>", "<|im_end|>", True),
    "LFM2": ("{{ bos_token }}" + CHATML, ["<|startoftext|>", *IM], "<|startoftext|>", "<|im_end|>", "<|im_end|>", True),
    "Llama 3": (LLAMA3, HEADERS, "<|begin_of_text|>", "<|eot_id|>", "<|eot_id|>", True),
    "Llama 3.1": (LLAMA31, HEADERS, "<|begin_of_text|>", "<|eot_id|>", "<|eot_id|>", True),
    "Llama 3.2": (LLAMA32, HEADERS, "<|begin_of_text|>", "<|eot_id|>", "<|eot_id|>", True),
    "Gemma": (GEMMA, ["<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"], "<bos>", "<eos>", "<end_of_turn>", False),
    "Zephyr": (ZEPHYR, ["<s>", "</s>"], "<s>", "</s>", "</s>", True),
    "Mistral": (MISTRAL, ["<s>", "</s>"], "<s>", "</s>", "</s>", False),
    "Mistral 0.2": (MISTRAL2, ["<s>", "</s>"], "<s>", "</s>", "</s>", False),
    "Mistral 0.3": (MISTRAL3, ["<s>", "</s>", "[INST]", "[/INST]"], "<s>", "</s>", "</s>", False),
    "Mistral 0.3, untrimmed": (MISTRAL3.replace("|trim", ""), ["<s>", "</s>", "[INST]", "[/INST]"], "<s>", "</s>", "</s>",
                               False),
    "Phi 3": (PHI3, ["<|endoftext|>", "<|user|>", "<|assistant|>", "<|system|>", "<|end|>"], None, "<|endoftext|>",
              "<|end|>", True),
    "Phi 4": (PHI4, [*IM, "<|im_sep|>"], None, "<|endoftext|>", "<|im_end|>", True),
}


def save_model(path, template, special, bos, eos):
    """A small model of transformers with a byte-level BPE, as those of Qwen and Llama 3."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    bpe.train_from_iterator([" ".join(WORDS), "user\nassistant\n\nsystem [INST] [/INST] <|user|>\n"] * 5,
                            trainers.BpeTrainer(vocab_size=330, special_tokens=special, show_progress=False,
                                                initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    if bos:
        bpe.post_processor = processors.TemplateProcessing(single=f"{bos} $A",
                                                           special_tokens=[(bos, bpe.token_to_id(bos))])
    fast = PreTrainedTokenizerFast(tokenizer_object=bpe, bos_token=bos, eos_token=eos)
    fast.chat_template = template
    fast.save_pretrained(path)
    LlamaForCausalLM(LlamaConfig(vocab_size=len(fast), hidden_size=32, intermediate_size=64, num_hidden_layers=1,
                                 num_attention_heads=2, max_position_embeddings=512,
                                 eos_token_id=fast.convert_tokens_to_ids(eos),
                                 bos_token_id=fast.convert_tokens_to_ids(bos) if bos else None)).save_pretrained(path)
    return fast
