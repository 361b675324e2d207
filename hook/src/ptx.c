/*
 * Reads the declarations of variables in PTX: [.extern|.visible|...] .global [.align N] TYPE NAME[N][N] [= {...}], ...; An expression
 * as a dimension, which no compiler writes, makes the text unreadable.
 */
#include <stdbool.h>

#include "image.h"

/* What is left of the text. */
struct text {
	const char *at, *end;
};

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_word(char c) { return is_digit(c) || ((c | 32) >= 'a' && (c | 32) <= 'z') || c == '_' || c == '$' || c == '%'; }

/* Returns the next character, or 0 at the end of the text. */
static char peek(const struct text *t) { return t->at < t->end ? *t->at : 0; }

/* Reports whether the text goes on with these two characters. */
static bool follows(const struct text *t, char a, char b) { return t->end - t->at >= 2 && t->at[0] == a && t->at[1] == b; }

/* Moves past white space and comments. */
static void skip_space(struct text *t) {
	for (char c; (c = peek(t));) {
		if (follows(t, '/', '/')) {
			while (peek(t) && peek(t) != '\n') t->at++;
		} else if (follows(t, '/', '*')) {
			for (t->at += 2; peek(t) && !follows(t, '*', '/');) t->at++;
			t->at = t->end - t->at >= 2 ? t->at + 2 : t->end;
		} else if (c == ' ' || (c >= '\t' && c <= '\r')) {
			t->at++;
		} else {
			return;
		}
	}
}

/* A word with its leading dot, if it has one. */
struct word {
	const char *at;
	size_t length;
};

/* Moves past a word and returns it; its length is 0 if none follows. A word ends before a dot, so ld.global is two. */
static struct word take_word(struct text *t) {
	skip_space(t);
	struct word w = {t->at, 0};
	if (peek(t) == '.') t->at++;
	while (is_word(peek(t))) t->at++;
	w.length = (size_t)(t->at - w.at);
	return w;
}

static bool equals(struct word w, const char *name) {
	size_t i = 0;
	while (i < w.length && name[i] && w.at[i] == name[i]) i++;
	return i == w.length && !name[i];
}

/* Returns the value of a number that takes up the whole word, or UINT64_MAX. */
static uint64_t number(struct word w) {
	uint64_t value = 0, base = 10;
	size_t i = 0;
	if (w.length && (w.at[w.length - 1] | 32) == 'u') w.length--;
	if (w.length > 1 && w.at[0] == '0') {
		base = (w.at[1] | 32) == 'x' ? 16 : (w.at[1] | 32) == 'b' ? 2 : 8;
		i = base == 8 ? 1 : 2;
	}
	if (i == w.length) return UINT64_MAX;
	for (; i < w.length; i++) {
		char c = w.at[i];
		uint64_t digit = is_digit(c) ? (uint64_t)(c - '0') : (uint64_t)((c | 32) - 'a') + 10;
		if (digit >= base || __builtin_mul_overflow(value, base, &value) || __builtin_add_overflow(value, digit, &value)) return UINT64_MAX;
	}
	return value;
}

/* Returns the bytes of a type such as .b8 or .f16x2, 16 for an unknown type, and 0 if the word is no type. */
static uint64_t type_bytes(struct word w) {
	static const char *const others[] = {".align", ".v2", ".v4", ".v8", ".attribute", ".ptr", ".global", ".param"};
	if (w.length < 2 || w.at[0] != '.') return 0;
	for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
		if (equals(w, others[i])) return 0;
	uint64_t bits = 0;
	for (size_t i = 2; i < w.length && is_digit(w.at[i]); i++) bits = bits * 10 + (uint64_t)(w.at[i] - '0');
	bool simple = bits >= 8 && bits <= 128 && (w.at[1] == 'b' || w.at[1] == 'u' || w.at[1] == 's' || w.at[1] == 'f');
	uint64_t lanes = w.length > 2 && w.at[w.length - 2] == 'x' ? (uint64_t)(w.at[w.length - 1] - '0') : 1;
	return simple ? bits / 8 * lanes : 16;
}

/* Moves past a bracketed group and counts its elements: one more than it has commas. */
static uint64_t skip_group(struct text *t) {
	uint64_t elements = 1;
	int depth = 0;
	do {
		char c = peek(t);
		if (c == '{' || c == '(') depth++;
		if (c == '}' || c == ')') depth--;
		if (c == ',') elements++;
		t->at++;
		skip_space(t);
	} while (depth && peek(t));
	return elements;
}

/* Multiplies; UINT64_MAX stays and is the result of an overflow. */
static uint64_t times(uint64_t a, uint64_t b) {
	uint64_t product;
	return a == UINT64_MAX || b == UINT64_MAX || __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

/* Returns the bytes of one variable, from its dimensions to before the comma or semicolon that ends it. */
static uint64_t variable_bytes(struct text *t, uint64_t bytes) {
	bool open = false; /* [] has as many elements as the initialiser */
	for (skip_space(t); peek(t) == '['; skip_space(t)) {
		t->at++;
		struct word n = take_word(t);
		skip_space(t);
		open = open || !n.length;
		bytes = peek(t) != ']' ? UINT64_MAX : n.length ? times(bytes, number(n)) : bytes;
		if (peek(t)) t->at++;
	}
	if (peek(t) != '=') return bytes;
	t->at++;
	skip_space(t);
	uint64_t elements = 1;
	if (peek(t) == '{') elements = skip_group(t);
	while (peek(t) && peek(t) != ',' && peek(t) != ';') t->at++;
	return open ? times(bytes, elements) : bytes;
}

/* Returns the bytes of the variables in a declaration whose .global has been read. */
static uint64_t declared_bytes(struct text *t) {
	uint64_t element = 0, lanes = 1, sum = 0, bytes;
	struct word w;
	while (!element) {
		w = take_word(t);
		if (equals(w, ".align")) {
			take_word(t);
		} else if (equals(w, ".attribute")) {
			skip_space(t);
			if (peek(t) == '(') skip_group(t);
		} else if (w.length == 3 && w.at[0] == '.' && w.at[1] == 'v') {
			lanes = number((struct word){w.at + 2, 1});
		} else if (!(element = type_bytes(w))) {
			return 0; /* not a declaration: .ptr .global describes the parameter of a kernel */
		}
	}
	do {
		if (peek(t) == ',') t->at++;
		take_word(t); /* the name */
		bytes = variable_bytes(t, times(element, lanes));
		if (__builtin_add_overflow(sum, bytes, &sum)) return UINT64_MAX;
		skip_space(t);
	} while (peek(t) == ',');
	return sum;
}

uint64_t gsh_ptx_bytes(const char *text, size_t length) {
	struct text t = {text, text + length};
	uint64_t sum = 0;
	bool defined = true, after_word = false; /* ld.global is an instruction */
	for (skip_space(&t); peek(&t); skip_space(&t)) {
		const char *before = t.at;
		struct word w = take_word(&t);
		bool adjacent = after_word && w.length && w.at == before && before > text && is_word(before[-1]);
		after_word = w.length != 0;
		if (!w.length) {
			if (peek(&t) == ';' || peek(&t) == '{' || peek(&t) == '}') defined = true;
			t.at++;
		} else if (equals(w, ".extern")) {
			defined = false;
		} else if (equals(w, ".global") && !adjacent) {
			uint64_t bytes = declared_bytes(&t);
			if (defined && __builtin_add_overflow(sum, bytes, &sum)) return UINT64_MAX;
		}
	}
	return sum;
}
