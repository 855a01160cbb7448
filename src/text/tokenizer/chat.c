#include "text/tokenizer/chat.h"

#include "text/tokenizer/internal.h"
#include "base/json.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>

const char *const chat_role_names[CHAT_ROLES] = {"system", "user", "assistant"};

/* ---- the forms ---- */

#define BOS "\1" /* the token that texts begin with */
#define EOS "\2" /* the token that ends texts */

enum { MARKS = 3, PARTS = 8 };

/* A form is that of a template that contains all of its marks, and not `without`; of several, the first one counts. */
typedef struct ChatForm {
  const char *name;
  const char *marks[MARKS], *without;
  const char *start;                                  /* before the first turn */
  const char *before[CHAT_ROLES], *after[CHAT_ROLES]; /* around a content; NULL: there is no such role */
  const char *finish;                                 /* after the last turn */
  const char *system;                                 /* the default system prompt; NULL: none */
  bool trims[CHAT_ROLES];                             /* contents lose white space at both ends */
  bool alternates;                                    /* a user's turn comes first, and then every second time */
  bool thinks;                                        /* the last answer has its thoughts, or empty ones */
} ChatForm;

#define EACH(x)                                                                                                        \
  { x, x, x }
#define CHATML                                                                                                         \
  .before = {"<|im_start|>system\n", "<|im_start|>user\n", "<|im_start|>assistant\n"}, .after = EACH("<|im_end|>\n")
#define QWEN_PROMPT "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
#define SMOLLM_PROMPT "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
#define HELPFUL "You are a helpful assistant"
#define HEADER(role) "<|start_header_id|>" role "<|end_header_id|>\n\n"
#define LLAMA(dates)                                                                                                   \
  .start = BOS, .before = {HEADER("system") dates, HEADER("user"), HEADER("assistant")}, .after = EACH("<|eot_id|>"),  \
  .trims = EACH(true)
#define LLAMA_DATES "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n"
#define ROLE_NAMES .before = {"<|system|>\n", "<|user|>\n", "<|assistant|>\n"}
#define MISTRAL(open, close, gap)                                                                                      \
  .start = BOS, .before = {NULL, open, gap}, .after = {NULL, close, EOS}, .alternates = true, .without = "<<SYS>>"
#define EMPTY_THOUGHTS "<think>\n\n</think>\n\n"

static const ChatForm forms[] = {
    {"Qwen 3", {"<|im_start|>", "reasoning_content", "<think>"}, CHATML, .thinks = true, .without = "strftime_now"},
    {"Qwen 2.5", {"<|im_start|>", QWEN_PROMPT}, CHATML, .system = QWEN_PROMPT},
    {"SmolLM 2", {"<|im_start|>", SMOLLM_PROMPT}, CHATML, .system = SMOLLM_PROMPT, .without = "strftime_now"},
    {"Qwen 2", {"<|im_start|>", HELPFUL ".<|im_end|>"}, CHATML, .system = HELPFUL "."},
    {"Qwen 1.5", {"<|im_start|>", HELPFUL "<|im_end|>"}, CHATML, .system = HELPFUL},
    {"Phi 4",
     {"<|im_start|>", "<|im_sep|>"},
     .before = {"<|im_start|>system<|im_sep|>", "<|im_start|>user<|im_sep|>", "<|im_start|>assistant<|im_sep|>"},
     .after = EACH("<|im_end|>")},
    {"LFM2", {"<|im_start|>", "bos_token"}, CHATML, .start = BOS, .without = "strftime_now"},
    {"ChatML", {"<|im_start|>"}, CHATML, .without = "strftime_now"},
    {"Llama 3.1", {"<|start_header_id|>", "Cutting Knowledge Date: December 2023"}, LLAMA(LLAMA_DATES), .system = ""},
    {"Llama 3", {"<|start_header_id|>"}, LLAMA(""), .without = "strftime_now"},
    {"Gemma",
     {"<start_of_turn>"},
     .start = BOS,
     .before = {NULL, "<start_of_turn>user\n", "<start_of_turn>model\n"},
     .after = {NULL, "<end_of_turn>\n", "<end_of_turn>\n"},
     .trims = EACH(true),
     .alternates = true},
    {"Phi 3", {"<|user|>\n", "<|end|>", "eos_token"}, ROLE_NAMES, .after = EACH("<|end|>\n"), .finish = EOS},
    {"Zephyr", {"<|user|>\n", "<|assistant|>", "eos_token"}, ROLE_NAMES, .after = EACH(EOS "\n")},
    {"Mistral 0.2", {" [INST] ", " [/INST]"}, MISTRAL(" [INST] ", " [/INST]", " ")},
    {"Mistral", {"[INST] ", " [/INST]"}, MISTRAL("[INST] ", " [/INST]", "")},
    {"Mistral 0.3",
     {"[INST] ", "[/INST]", "|trim"},
     MISTRAL("[INST] ", "[/INST]", " "),
     .trims = {[CHAT_ASSISTANT] = true}},
    {"Mistral 0.3, untrimmed", {"[INST] ", "[/INST]"}, MISTRAL("[INST] ", "[/INST]", " ")},
};

#define OWN_TEMPLATE                                                                                                   \
  "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + "    \
  "'\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"

/* Returns whether a template contains a text, whose newlines may be written as \n there. */
static bool has(const char *jinja, const char *text) {
  for (; *jinja; jinja++) {
    const char *at = jinja, *wanted = text;
    while (*wanted && *at) {
      const bool escaped = *wanted == '\n' && at[0] == '\\' && at[1] == 'n';
      if (!escaped && *at != *wanted) break;
      at += escaped ? 2 : 1;
      wanted++;
    }
    if (!*wanted) return true;
  }
  return false;
}

static const ChatForm *form_of(const char *jinja) {
  for (const ChatForm *form = forms; form < forms + sizeof forms / sizeof *forms; form++) {
    bool is = !form->without || !has(jinja, form->without);
    for (int i = 0; is && i < MARKS && form->marks[i]; i++) is = has(jinja, form->marks[i]);
    if (is) return form;
  }
  return NULL;
}

/* ---- a form for a tokenizer ---- */

/* A text of a form as special tokens and texts between them. */
typedef struct Part {
  const AddedToken *token; /* NULL: a text */
  const char *text;
  size_t size;
} Part;
typedef struct Parts {
  Part parts[PARTS];
  int count;
} Parts;

struct Chat {
  const ChatForm *form;
  const Tokenizer *tokenizer;
  Parts start, before[CHAT_ROLES], after[CHAT_ROLES], finish;
};

/* Returns the longest added token that the text begins with; NULL: none. */
static const AddedToken *token_at(const Tokenizer *t, const char *text) {
  const AddedToken *longest = NULL;
  if (*text == *BOS) return tokenizer_added(t, t->begin);
  if (*text == *EOS) return tokenizer_added(t, t->end);
  for (const AddedToken *entry = t->added; entry < t->added + t->added_count; entry++)
    if (*entry->text && strncmp(text, entry->text, strlen(entry->text)) == 0 &&
        (!longest || strlen(entry->text) > strlen(longest->text)))
      longest = entry;
  return longest;
}

static bool divide(const Tokenizer *t, const char *text, Parts *out, Error *error) {
  bool open = false; /* the last part is a text that goes on */
  for (; text && *text;) {
    const AddedToken *token = token_at(t, text);
    const bool named = *text == *BOS || *text == *EOS;
    if (named && !token)
      return fail(error, EXIT_CHECKPOINT, "its template begins with a token, and the tokenizer does not name it");
    const size_t size = token && !named ? strlen(token->text) : 1;
    if (open && !token) out->parts[out->count - 1].size++;
    else if (out->count == PARTS) return fail(error, EXIT_INTERNAL, "a chat form of more than %d parts", PARTS);
    else out->parts[out->count++] = (Part){token, text, size};
    open = !token;
    text += size;
  }
  return true;
}

static bool divide_form(Chat *chat, Error *error) {
  const ChatForm *form = chat->form;
  const Tokenizer *t = chat->tokenizer;
  bool ok = divide(t, form->start, &chat->start, error) && divide(t, form->finish, &chat->finish, error);
  for (int role = 0; ok && role < CHAT_ROLES; role++)
    ok = divide(t, form->before[role], &chat->before[role], error) &&
         divide(t, form->after[role], &chat->after[role], error);
  const Part *end = &chat->after[CHAT_ASSISTANT].parts[0];
  if (ok && !end->token)
    return fail(error, EXIT_CHECKPOINT, "the tokenizer does not have %s, which ends a turn of its chat template",
                form->after[CHAT_ASSISTANT]);
  return ok;
}

bool chat_open(Chat **out, const Tokenizer *tokenizer, Error *error) {
  *out = NULL;
  const char *jinja = tokenizer_chat_template(tokenizer);
  if (!jinja) return fail(error, EXIT_CHECKPOINT, "the tokenizer has no chat template, which conversations need");
  const ChatForm *form = form_of(jinja);
  if (!form)
    return fail(error, EXIT_CHECKPOINT,
                "the chat template of the tokenizer (\"%.60s...\") is none of those that are supported: ChatML, Llama "
                "3, Gemma, Zephyr, Phi and Mistral",
                text_one_line(jinja, 60).text);
  Chat *chat = calloc(1, sizeof *chat);
  if (!chat) return error_memory(error, "a chat template");
  chat->form = form;
  chat->tokenizer = tokenizer;
  if (divide_form(chat, error)) {
    *out = chat;
    return true;
  }
  free(chat);
  return false;
}

void chat_close(Chat *chat) { free(chat); }

/* ---- pieces ---- */

void chat_text_free(ChatText *text) {
  free(text->text.bytes);
  free(text->pieces);
  *text = (ChatText){0};
}

static ChatPiece *new_piece(ChatText *out, int32_t id, Error *error) {
  if (!array_reserve(&out->pieces, &out->capacity, out->count + 1, sizeof *out->pieces)) {
    error_memory(error, "a conversation");
    return NULL;
  }
  ChatPiece *piece = &out->pieces[out->count++];
  *piece = (ChatPiece){.id = id, .begin = out->text.size, .end = out->text.size, .learned = out->text.size};
  return piece;
}

bool chat_text_add_token(ChatText *out, int32_t id, bool in_loss, Error *error) {
  ChatPiece *piece = new_piece(out, id, error);
  if (piece) piece->in_loss = in_loss;
  return piece;
}

bool chat_text_add(ChatText *out, const uint8_t *bytes, size_t size, bool in_loss, Error *error) {
  ChatPiece *piece = new_piece(out, -1, error);
  if (!piece || !byte_buffer_add(&out->text, bytes, size, error)) return false;
  piece->end = out->text.size;
  if (!in_loss) piece->learned = piece->end;
  return true;
}

/* The pieces of one conversation while they are made. */
typedef struct Writer {
  ChatText *out;
  size_t first;    /* piece of the conversation */
  bool opens;      /* the next piece opens a user's turn */
  bool skip_space; /* the last token takes the white space after it */
  Error *error;
} Writer;

static bool is_space(uint8_t byte) { return byte == ' ' || (byte >= '\t' && byte <= '\r'); }

/* Adds to the last piece if that is a text, else begins one. */
static bool write_text(Writer *w, const uint8_t *bytes, size_t size, bool learned) {
  ChatText *out = w->out;
  for (; w->skip_space && size && is_space(*bytes); bytes++) size--;
  if (!size) return true;
  w->skip_space = false;
  ChatPiece *piece = out->count > w->first ? &out->pieces[out->count - 1] : NULL;
  if (!piece || piece->id >= 0) piece = new_piece(out, -1, w->error);
  if (!piece) return false;
  piece->opens = piece->opens || w->opens;
  w->opens = false;
  const bool none = piece->learned == piece->end;
  if (!byte_buffer_add(&out->text, bytes, size, w->error)) return false;
  piece->end = out->text.size;
  if (none && !learned) piece->learned = piece->end;
  return true;
}

static bool write_token(Writer *w, const AddedToken *token, bool in_loss) {
  ChatText *out = w->out;
  ChatPiece *last = out->count > w->first ? &out->pieces[out->count - 1] : NULL;
  if (token->lstrip && last && last->id < 0)
    while (last->end > last->begin && is_space(out->text.bytes[last->end - 1])) last->end--;
  if (last && last->learned > last->end) last->learned = last->end;
  if (!chat_text_add_token(out, token->id, in_loss, w->error)) return false;
  out->pieces[out->count - 1].opens = w->opens;
  w->opens = false;
  w->skip_space = token->rstrip;
  return true;
}

/* Writes a text of the form; the loss counts its first token if `in_loss`. */
static bool write_parts(Writer *w, const Parts *parts, bool in_loss) {
  for (int i = 0; i < parts->count; i++) {
    const Part *part = &parts->parts[i];
    if (part->token ? !write_token(w, part->token, in_loss && i == 0)
                    : !write_text(w, (const uint8_t *)part->text, part->size, false))
      return false;
  }
  return true;
}

/* Qwen 3 drops the thoughts of answers, but those of the last one, which are empty if there are none. */
static bool write_thoughts(Writer *w, ChatTurn *turn, bool last, bool learned) {
  static const char end[] = "</think>";
  const size_t size = sizeof end - 1;
  size_t at = turn->size;
  while (at > 0 && (at < size || memcmp(turn->text + at - size, end, size) != 0)) at--;
  if (last) return at || write_text(w, (const uint8_t *)EMPTY_THOUGHTS, sizeof EMPTY_THOUGHTS - 1, learned);
  for (; at && at < turn->size && turn->text[at] == '\n'; at++) {
  }
  turn->text += at;
  turn->size -= at;
  return true;
}

static bool write_turn(Writer *w, const Chat *chat, ChatTurn turn, bool last, bool all) {
  const bool learned = all || turn.role == CHAT_ASSISTANT;
  w->opens = turn.role == CHAT_USER;
  const bool trims = chat->form->trims[turn.role];
  for (; trims && turn.size && is_space(turn.text[0]); turn.text++) turn.size--;
  while (trims && turn.size && is_space(turn.text[turn.size - 1])) turn.size--;
  return write_parts(w, &chat->before[turn.role], false) &&
         (!chat->form->thinks || turn.role != CHAT_ASSISTANT || write_thoughts(w, &turn, last, learned)) &&
         write_text(w, turn.text, turn.size, learned) && write_parts(w, &chat->after[turn.role], learned);
}

static bool check_turns(const ChatForm *form, const ChatTurn *turns, size_t count, Error *error) {
  const bool prompt = count > 0 && turns[0].role == CHAT_SYSTEM;
  if (prompt && !form->before[CHAT_SYSTEM])
    return fail(error, EXIT_INPUT,
                "the chat template of the model (%s) has no system prompt; put it into the first message of the user",
                form->name);
  for (size_t i = prompt; form->alternates && i < count; i++)
    if (turns[i].role != ((i - prompt) % 2 ? CHAT_ASSISTANT : CHAT_USER))
      return fail(error, EXIT_INPUT,
                  "the chat template of the model (%s) begins with the user, who then speaks every second time; "
                  "message %zu is of the other side",
                  form->name, i + 1);
  return true;
}

/* Returns whether the text before an answer is written to begin one. A space, as in Mistral 0.3, is not: it is a part
 * of the answer's first token. */
static bool opens_answer(const ChatForm *form) { return !is_space((uint8_t)*form->before[CHAT_ASSISTANT]); }

/* Goes on to where the assistant's turn begins. */
static bool write_reply(Writer *w, const Chat *chat) {
  return !opens_answer(chat->form) || write_parts(w, &chat->before[CHAT_ASSISTANT], false);
}

bool chat_render(const Chat *chat, const ChatTurn *turns, size_t count, bool all, bool reply, ChatText *out,
                 Error *error) {
  const ChatForm *form = chat->form;
  Writer w = {.out = out, .first = out->count, .error = error};
  const bool adds = form->system && !(count > 0 && turns[0].role == CHAT_SYSTEM);
  bool ok = check_turns(form, turns, count, error) && write_parts(&w, &chat->start, false);
  if (adds) {
    const ChatTurn prompt = {CHAT_SYSTEM, (const uint8_t *)form->system, strlen(form->system)};
    ok = ok && write_turn(&w, chat, prompt, false, all);
  }
  for (size_t i = 0; ok && i < count; i++) ok = write_turn(&w, chat, turns[i], i + 1 == count, all);
  return ok && (reply ? write_reply(&w, chat) : write_parts(&w, &chat->finish, false));
}

/* ---- ids ---- */

/* Encodes and frees the pieces, without special tokens in contents. */
static bool encode_text(Tokenizer *t, ChatText *text, BpeIds *ids, Error *error) {
  const bool special = t->takes_special;
  bool ok = true;
  tokenizer_set_special(t, false);
  for (const ChatPiece *piece = text->pieces; ok && piece < text->pieces + text->count; piece++)
    ok = piece->id >= 0 ? bpe_ids_sink(ids, &piece->id, 1, error)
                        : tokenizer_encode(t, text->text.bytes + piece->begin, piece->end - piece->begin, ids, error);
  tokenizer_set_special(t, special);
  chat_text_free(text);
  return ok;
}

bool chat_encode(const Chat *chat, Tokenizer *tokenizer, const ChatTurn *turns, size_t count, bool reply, BpeIds *ids,
                 Error *error) {
  ChatText text = {0};
  if (chat_render(chat, turns, count, false, reply, &text, error)) return encode_text(tokenizer, &text, ids, error);
  chat_text_free(&text);
  return false;
}

/* ---- what fits into a context ---- */

size_t chat_room(size_t ctx, int64_t most) {
  return (most >= 0 && most < (int64_t)ctx / 4 ? (size_t)most : ctx / 4) + 1;
}

/* Encodes the system prompt, if there is one, and the messages after the first `dropped` ones. */
static bool encode_rest(const Chat *chat, Tokenizer *tokenizer, const ChatTurn *turns, size_t count, size_t dropped,
                        BpeIds *ids, Error *error) {
  ChatTurn *rest = malloc((count + 1) * sizeof *rest);
  size_t kept = 0;
  if (!rest) return error_memory(error, "a chat");
  for (size_t i = 0; i < count; i++)
    if (turns[i].role == CHAT_SYSTEM || i >= dropped + (turns[0].role == CHAT_SYSTEM)) rest[kept++] = turns[i];
  ids->count = 0;
  const bool ok = chat_encode(chat, tokenizer, rest, kept, true, ids, error);
  free(rest);
  return ok;
}

/* Makes `ids` those of the newest messages that fit. */
static bool encode_newest(const Chat *chat, Tokenizer *tokenizer, const ChatTurn *turns, size_t count, size_t ctx,
                          size_t room, size_t *dropped, BpeIds *ids, Error *error) {
  const size_t system = count && turns[0].role == CHAT_SYSTEM;
  if (!encode_rest(chat, tokenizer, turns, count, *dropped, ids, error)) return false;
  if (ids->count + room <= ctx) return true;
  size_t least = *dropped + 1, most = count > system ? count - system - 1 : 0; /* the last message is always there */
  while (least <= most) {
    size_t middle = least + (most - least) / 2, from = middle;
    while (from < count - system - 1 && turns[from + system].role != CHAT_USER) from++;
    if (!encode_rest(chat, tokenizer, turns, count, *dropped = from, ids, error)) return false;
    if (least == most) break;
    if (ids->count > ctx / 2) least = middle + 1;
    else most = middle;
  }
  return ids->count < ctx ||
         fail(error, EXIT_INPUT, "this message makes %zu tokens; the context of %zu has no room for an answer",
              ids->count, ctx);
}

bool chat_encode_newest(const Chat *chat, Tokenizer *tokenizer, const ChatTurn *turns, size_t count, size_t ctx,
                        size_t room, size_t *dropped, BpeIds *ids, size_t *cached, Error *error) {
  const size_t before = *dropped;
  const BpeIds old = *ids;
  *ids = (BpeIds){0};
  const bool ok = encode_newest(chat, tokenizer, turns, count, ctx, room, dropped, ids, error);
  *cached = ok && old.count && old.count < ids->count && !memcmp(ids->ids, old.ids, old.count * sizeof *old.ids)
                ? old.count
                : 0;
  if (!ok) *dropped = before; /* the message that does not fit is taken back, the others stay */
  if (!ok) ids->count = 0;
  free(old.ids);
  return ok;
}

int32_t chat_end(const Chat *chat) { return chat->after[CHAT_ASSISTANT].parts[0].token->id; }
bool chat_has_system(const Chat *chat) { return chat->form->before[CHAT_SYSTEM] != NULL; }

/* ---- the form for ollama ---- */

static void write_for_ollama(FILE *out, const Tokenizer *t, const char *text) {
  for (; *text; text++)
    if (*text == *EOS) fputs(tokenizer_added(t, t->end)->text, out);
    else putc(*text, out);
}

static void write_role_for_ollama(FILE *out, const Chat *chat, ChatRole role, const char *content) {
  write_for_ollama(out, chat->tokenizer, chat->form->before[role]);
  fputs(content, out);
  write_for_ollama(out, chat->tokenizer, chat->form->after[role]);
  fputs("{{ end }}", out);
}

void chat_write_ollama(const Chat *chat, FILE *out) {
  const ChatForm *form = chat->form;
  if (form->system) {
    fputs("{{ if not .System }}", out);
    write_role_for_ollama(out, chat, CHAT_SYSTEM, form->system);
  }
  fputs("{{ range .Messages }}", out);
  for (ChatRole role = 0; role < CHAT_ROLES; role++) {
    if (!form->before[role]) continue;
    fprintf(out, "{{ if eq .Role \"%s\" }}", chat_role_names[role]);
    write_role_for_ollama(out, chat, role, "{{ .Content }}");
  }
  fputs("{{ end }}", out);
  if (opens_answer(form)) write_for_ollama(out, chat->tokenizer, form->before[CHAT_ASSISTANT]);
}

/* ---- the form of new models ---- */

static bool add_token(json_t *tokens, int32_t id, const char *text) {
  json_t *token = json_pack("{s:i, s:s, s:b, s:b, s:b, s:b, s:b}", "id", id, "content", text, "single_word", 0,
                            "lstrip", 0, "rstrip", 0, "normalized", 0, "special", 1);
  return json_array_append_new(tokens, token) == 0;
}

bool chat_extend_tokenizer(Tokenizer **tokenizer, Error *error) {
  Tokenizer *old = *tokenizer, *new = NULL;
  char *text = NULL;
  size_t size;
  int32_t next = old->bpe->tokens.size;
  if (old->bpe->level == WORD_LEVEL_IDS)
    return fail(error, EXIT_INPUT, "--tokenizer ids is for a text of ids, not for conversations; leave it out");
  if (!tokenizer_text(old, &text, &size, error)) return false;
  json_t *root = json_parse(text, size, 0, NULL, TOKENIZER_JSON, error);
  free(text);
  if (!root) return false;
  if (old->added_count && old->added[old->added_count - 1].id >= next) next = old->added[old->added_count - 1].id + 1;
  json_t *tokens = json_object_get(root, "added_tokens");
  const bool added = add_token(tokens, next, "<|im_start|>") && add_token(tokens, next + 1, "<|im_end|>");
  text = added ? json_text(root, JSON_INDENT(2), TOKENIZER_JSON, error) : NULL;
  json_decref(root);
  if (!text) return error->code || error_memory(error, TOKENIZER_JSON);
  if (!json_read_tokenizer(&new, text, strlen(text), TOKENIZER_JSON, next + 1, error)) return false;
  tokenizer_free(old);
  *tokenizer = new;
  return tokenizer_set_chat_template(new, OWN_TEMPLATE, error);
}
