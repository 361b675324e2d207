package gateway

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
)

// TestReasonsAreDocumented: all refusals have a cause of the table in refusal.go, and the page for callers has a row for each reason, with exactly
// the statuses and gRPC codes of its causes, and none for others.
func TestReasonsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/serving-call.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "| `X-Gshare-Reason` |")
	table, _, _ = strings.Cut(table, "\n\n")
	documented := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\| ([^|]+) \\| ([^|]+) \\|").FindAllStringSubmatch(table, -1) {
		documented[row[1]] = row[2] + ": " + row[3]
	}
	wanted, reasons := map[string]string{}, reasonsOf(t)
	for _, reason := range slices.Sorted(maps.Keys(reasons)) {
		var statuses, names []string
		for _, c := range reasons[reason] {
			if status := strconv.Itoa(c.status); !slices.Contains(statuses, status) {
				statuses = append(statuses, status)
			}
			if name := "`" + grpcName(c.code) + "`"; !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
		wanted[reason] = strings.Join(statuses, ", ") + ": " + strings.Join(names, ", ")
		if documented[reason] != wanted[reason] {
			t.Errorf("docs/serving-call.md has %q for the reason %s of refusal.go, want %q", documented[reason], reason, wanted[reason])
		}
	}
	for reason := range documented {
		if wanted[reason] == "" {
			t.Errorf("docs/serving-call.md has a row for the reason %s, which refusal.go does not have", reason)
		}
	}
}

// grpcName returns the name of a code in the specification of gRPC: NOT_FOUND for NotFound.
func grpcName(code codes.Code) string {
	if code == codes.Canceled {
		return "CANCELLED"
	}
	return strings.ToUpper(regexp.MustCompile(`([a-z])([A-Z])`).ReplaceAllString(code.String(), "${1}_$2"))
}

// reasonsOf reads the causes in the source, by their reasons. It fails the test if a cause is not in the table, or lacks a reason or a code.
func reasonsOf(t *testing.T) map[string][]cause {
	t.Helper()
	statuses := map[string]int{"statusClientGone": statusClientGone}
	for status := 400; status < 600; status++ {
		statuses["http.Status"+strings.ReplaceAll(http.StatusText(status), " ", "")] = status
	}
	byName := map[string]codes.Code{}
	for code := codes.OK + 1; code <= codes.Unauthenticated; code++ {
		byName[code.String()] = code
	}
	row := regexp.MustCompile(`(?m)^\tcause\w+ += cause\{([\w.]+), (reason\w+), codes\.(\w+)\}$`)
	constant := regexp.MustCompile(`(?m)^\t(reason[A-Z]\w*) += "([a-z-]+)"$`)
	files, _ := filepath.Glob("*.go")
	reasons, causes := map[string]string{}, map[string][]cause{}
	for _, file := range files {
		source, err := os.ReadFile(file)
		switch {
		case err != nil:
			t.Fatal(err)
		case strings.HasSuffix(file, "_test.go"):
			continue
		}
		for _, m := range constant.FindAllStringSubmatch(string(source), -1) {
			reasons[m[1]] = m[2]
			causes[m[2]] = nil
		}
		rows := row.FindAllStringSubmatch(string(source), -1)
		if all := strings.Count(string(source), "cause{"); file != "refusal.go" && all > 0 || len(rows) != all {
			t.Errorf("%s has %d causes, of which %d are rows of the table in refusal.go", file, all, len(rows))
		}
		for _, m := range rows {
			c := cause{statuses[m[1]], reasons[m[2]], byName[m[3]]}
			if c.status == 0 || c.reason == "" || c.code == codes.OK {
				t.Errorf("the cause %s of %s is %+v", m[0], file, c)
			}
			causes[c.reason] = append(causes[c.reason], c)
		}
	}
	for reason, of := range causes {
		if len(of) == 0 {
			t.Errorf("the reason %s has no cause in the table of refusal.go", reason)
		}
	}
	return causes
}

// TestRefusalsByProtocol: what clients of each protocol get for each cause, in the words that they know.
func TestRefusalsByProtocol(t *testing.T) {
	const invalid, limit, server = "invalid_request_error", "rate_limit_error", "server_error"
	expected := map[cause]struct {
		kind        string // for OpenAI's clients
		again, once bool   // Retry-After; X-Should-Retry: false
	}{
		causeUnknown: {kind: invalid}, causeCaller: {kind: invalid}, causeBadRequest: {kind: invalid}, causeMethod: {kind: invalid},
		causeSlowBody: {kind: invalid}, causeLongHeader: {kind: invalid}, causeShortBody: {kind: invalid}, causeClientGone: {kind: invalid},
		causeTooLarge: {kind: invalid}, causeNotGRPC: {kind: invalid},
		causeQueueFull: {kind: limit, again: true}, causePredictedLate: {kind: limit, again: true},
		causeLate: {kind: server, again: true}, causeHoldFull: {kind: server, again: true}, causeHoldExpired: {kind: server, again: true},
		causeBackOff: {kind: server, again: true}, causeCallerUnknown: {kind: server, again: true}, causeStopping: {kind: server, again: true},
		causeDeadline: {kind: server, once: true}, causeIdle: {kind: server, once: true},
		causeReplica: {kind: server}, causeGateway: {kind: server},
	}
	all := 0
	for _, causes := range reasonsOf(t) {
		all += len(causes)
		for _, c := range causes {
			want, ok := expected[c]
			if !ok {
				t.Errorf("no row for %+v", c)
			}
			for name, why := range map[string]refusal{"": newRefusal(c, "text"), " served once": newRefusal(c, "text").servedOnce()} {
				openAI, other, grpc := httptest.NewRecorder(), httptest.NewRecorder(), httptest.NewRecorder()
				why.write(openAI, true)
				why.write(other, false)
				why.writeGRPC(grpc)
				for _, w := range []*httptest.ResponseRecorder{openAI, other} {
					if again := w.Header().Get("Retry-After"); w.Code != c.status || w.Header().Get(reasonHeader) != c.reason || (again == "1") != want.again {
						t.Errorf("%+v%s: status %d, Retry-After %q", c, name, w.Code, again)
					}
				}
				text := fmt.Sprintf(`{"error":{"code":%q,"message":%q,"param":null,"type":%q}}`, c.reason, why.text, want.kind)
				if retry := openAI.Header().Get("X-Should-Retry"); openAI.Body.String() != text || (retry == "false") != (want.once || why.once) {
					t.Errorf("%+v%s: X-Should-Retry %q, %s, want %s", c, name, retry, openAI.Body, text)
				}
				if text := fmt.Sprintf(`{"error":%q}`, why.text); other.Body.String() != text {
					t.Errorf("%+v%s: %s, want %s", c, name, other.Body, text)
				}
				if status := grpc.Header().Get(grpcStatus); grpc.Code != 200 || status != strconv.Itoa(int(c.code)) || grpc.Body.Len() > 0 {
					t.Errorf("%+v%s: gRPC status %s, HTTP %d", c, name, status, grpc.Code)
				}
			}
		}
	}
	if all != len(expected) {
		t.Errorf("%d causes, %d rows", all, len(expected))
	}
}
