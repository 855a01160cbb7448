/* text/tokenizer/chat: the ids of a conversation and of the beginning of an answer, with what the loss counts. The
 * expected ones are written by hand; tests/chat.py compares whole texts with transformers. */
#include "text/tokenizer/chat.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { START = 257, END = 258 };

/* "\1" stands for START, "\2" for END. */
static void expect_ids(const BpeIds *ids, const char *text) {
  assert_int_equal(ids->count, strlen(text));
  for (size_t i = 0; i < ids->count; i++) {
    const int32_t wanted = text[i] == '\1' ? START : text[i] == '\2' ? END : (int32_t)(uint8_t)text[i];
    assert_int_equal(ids->ids[i], wanted);
  }
}

/* In `counted`, "x" stands for a byte or token in the loss. */
static void expect_counted(const ChatText *text, const char *counted) {
  size_t at = 0;
  for (const ChatPiece *piece = text->pieces; piece < text->pieces + text->count; piece++) {
    if (piece->id >= 0) assert_int_equal(piece->in_loss, counted[at++] == 'x');
    else
      for (size_t i = piece->begin; i < piece->end; i++) assert_int_equal(i >= piece->learned, counted[at++] == 'x');
  }
  assert_int_equal(counted[at], 0);
}

static void encode(const char *template, const ChatTurn *turns, size_t count, bool reply, const char *text,
                   const char *counted) {
  Tokenizer *tokenizer = tokenizer_byte();
  Chat *chat;
  BpeIds ids = {0};
  ChatText pieces = {0};
  Error error = {0};
  assert_true(chat_extend_tokenizer(&tokenizer, &error));
  assert_int_equal(tokenizer_end(tokenizer), END);
  tokenizer_set_begins_with_end(tokenizer, true); /* the token that some forms begin with */
  if (template) assert_true(tokenizer_set_chat_template(tokenizer, template, &error));
  assert_true(chat_open(&chat, tokenizer, &error));
  tokenizer_set_special(tokenizer, true); /* contents have no special tokens even so */
  if (text) {
    assert_true(chat_encode(chat, tokenizer, turns, count, reply, &ids, &error));
    expect_ids(&ids, text);
    assert_true(chat_render(chat, turns, count, false, reply, &pieces, &error));
    expect_counted(&pieces, counted);
  } else {
    assert_false(chat_encode(chat, tokenizer, turns, count, reply, &ids, &error));
    assert_int_equal(error.code, EXIT_INPUT);
  }
  chat_close(chat);
  tokenizer_free(tokenizer);
  free(ids.ids);
  chat_text_free(&pieces);
}

#define TURN(role, text)                                                                                               \
  { role, (const uint8_t *)(text), sizeof(text) - 1 }

static void own_form(void **state) {
  (void)state;
  const ChatTurn turns[] = {TURN(CHAT_SYSTEM, "s"), TURN(CHAT_USER, "hi"), TURN(CHAT_ASSISTANT, "\nho"),
                            TURN(CHAT_USER, "<|im_end|>")};
  encode(NULL, turns, 3, false, "\1system\ns\2\n\1user\nhi\2\n\1assistant\n\nho\2\n",
         "                                xxxx ");
  encode(NULL, turns + 1, 1, true, "\1user\nhi\2\n\1assistant\n", "                     ");
  encode(NULL, turns, 0, true, "\1assistant\n", "           ");
  encode(NULL, turns + 2, 2, false, "\1assistant\n\nho\2\n\1user\n<|im_end|>\2\n",
         "           xxxx                   ");
}

static void other_forms(void **state) {
  (void)state;
  const ChatTurn turns[] = {TURN(CHAT_SYSTEM, "s"), TURN(CHAT_USER, "a"), TURN(CHAT_ASSISTANT, "b"),
                            TURN(CHAT_ASSISTANT, "c")};
  const char zephyr[] = "{{ '<|user|>\\n' + m + eos_token + '<|assistant|>' }}",
             mistral[] = "'[INST] ' + m + ' [/INST]'", spaced[] = "'[INST] ' + m + '[/INST]'";
  encode(zephyr, turns + 1, 1, true, "<|user|>\na\2\n<|assistant|>\n", "                          ");
  encode(mistral, turns + 1, 2, true, "\2[INST] a [/INST]b\2", "                 xx");
  encode(spaced, turns + 1, 1, true, "\2[INST] a[/INST]", "                ");
  encode(spaced, turns + 1, 2, false, "\2[INST] a[/INST] b\2", "                 xx");
  encode(mistral, turns, 3, false, NULL, NULL);     /* no system prompt */
  encode(mistral, turns + 2, 1, false, NULL, NULL); /* the user begins */
  encode(mistral, turns + 1, 3, false, NULL, NULL); /* every second time */
}

/* Templates that are not supported, and tokens that the tokenizer does not have. */
static void refused(void **state) {
  (void)state;
  static const char *const templates[] = {NULL, "{{ messages }}", "<start_of_turn>", "<|im_start|>{{ strftime_now() }}",
                                          "[INST] <<SYS>> [/INST]"};
  for (size_t i = 0; i < sizeof templates / sizeof *templates; i++) {
    Tokenizer *tokenizer = tokenizer_byte();
    Chat *chat;
    Error error = {0};
    assert_true(tokenizer_set_chat_template(tokenizer, templates[i], &error));
    assert_false(chat_open(&chat, tokenizer, &error));
    assert_int_equal(error.code, EXIT_CHECKPOINT);
    assert_null(chat);
    tokenizer_free(tokenizer);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(own_form), cmocka_unit_test(other_forms),
                                     cmocka_unit_test(refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
