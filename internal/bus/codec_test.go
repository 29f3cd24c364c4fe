package bus

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"reflect"
	"testing"
)

func TestKeysRoundTrip(t *testing.T) {
	for _, tokens := range [][]string{{"a"}, {"10.1.0.0/24", "x y", "a=b", "*", ">", "ключ", "\x00\xff"}, {"A-Z_09"}} {
		key := Key(tokens...)
		if back := must(SplitKey(key))(t); !reflect.DeepEqual(back, tokens) {
			t.Errorf("%q became %q became %q", tokens, key, back)
		}
	}
	expect(t, "escape", Key("10.1.0.0/24", "x"), "10=2E1=2E0=2E0=2F24.x")
}

func FuzzSplitKey(f *testing.F) {
	for _, seed := range []string{"", "a.b", "a=2Eb", "a=2eb", "a=", "a=2", "=41", "a..b", "."} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, key string) {
		tokens, err := SplitKey(key)
		if err != nil {
			if !errors.Is(err, ErrInvalidKey) {
				t.Fatalf("error %v", err)
			}
			return
		}
		if back := Key(tokens...); back != key {
			t.Fatalf("%q split and joined is %q", key, back)
		}
	})
}

func TestSiteNames(t *testing.T) {
	for _, good := range []string{"a", "east-1", "0"} {
		if err := validSite(good); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []string{"", "-a", "a-", "A", "a.b", "a_b", "_", "a b", string(bytes.Repeat([]byte("a"), 64))} {
		wantError(t, validSite(bad), ErrInvalidKey)
	}
}

func TestPrefixesAreWholeTokens(t *testing.T) {
	var seen []string
	ancestors("a.bc.d", func(p string) bool { seen = append(seen, p); return false })
	if want := []string{"", "a", "a.bc", "a.bc.d"}; !reflect.DeepEqual(seen, want) {
		t.Fatalf("prefixes %q, want %q", seen, want)
	}
}

func TestMessagesRoundTrip(t *testing.T) {
	request := openRequest{"s", 1 << 40, []prefixPosition{{"", position{}}, {"a.b", position{1, 2, 3}}}}
	if back := must(decodeOpenRequest(request.encode()))(t); !reflect.DeepEqual(back, request) {
		t.Errorf("%+v became %+v", request, back)
	}
	reply := openReply{7, []prefixStatus{{prefixWhole, ""}, {prefixRefused, "why"}}}
	if back := must(decodeOpenReply(reply.encode()))(t); !reflect.DeepEqual(back, reply) {
		t.Errorf("%+v became %+v", reply, back)
	}
	b := batch{1, true, 2, 3, []batchChange{{true, "k", 4, 5, []byte{}}, {false, "l", 6, 7, []byte("v")}}}
	if back := must(decodeBatch(b.encode()))(t); !reflect.DeepEqual(back, b) {
		t.Errorf("%+v became %+v", b, back)
	}
}

// FuzzMessages checks that no bytes from a peer do worse than an error, and that what decodes encodes to itself.
func FuzzMessages(f *testing.F) {
	f.Add(openRequest{"s", 9, []prefixPosition{{"a", position{1, 2, 3}}}}.encode())
	f.Add(openReply{7, []prefixStatus{{prefixRefused, "why"}}}.encode())
	f.Add(batch{1, true, 2, 3, []batchChange{{false, "l", 6, 7, []byte("v")}}}.encode())
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01})
	f.Fuzz(func(t *testing.T, data []byte) {
		check := func(err error, again func() (any, any)) {
			if err != nil {
				if !errors.Is(err, errMalformed) {
					t.Fatalf("error %v", err)
				}
				return
			}
			if once, twice := again(); !reflect.DeepEqual(once, twice) {
				t.Fatalf("%+v is read back as %+v", once, twice)
			}
		}
		request, err := decodeOpenRequest(data)
		check(err, func() (any, any) { m, _ := decodeOpenRequest(request.encode()); return request, m })
		reply, err := decodeOpenReply(data)
		check(err, func() (any, any) { m, _ := decodeOpenReply(reply.encode()); return reply, m })
		b, err := decodeBatch(data)
		check(err, func() (any, any) { m, _ := decodeBatch(b.encode()); return b, m })
		_, _, err = decodeCredit(data)
		check(err, func() (any, any) { return nil, nil })
	})
}

func TestMessagesCutAnywhereAreErrors(t *testing.T) {
	whole := batch{1, true, 2, 3, []batchChange{{false, "key", 6, 7, []byte("value")}}}.encode()
	for n := range whole {
		_, err := decodeBatch(whole[:n])
		wantError(t, err, errMalformed)
	}
	_, err := decodeBatch(append(whole, 0))
	wantError(t, err, errMalformed)
}

// TestHotKeyIsNotStarved changes one key all the time while others fill what the peer takes.
func TestHotKeyIsNotStarved(t *testing.T) {
	x := newIndex()
	s := newSession(x, nil, openRequest{session: "s", window: 1 << 20})
	s.prefixes[""] = position{}
	s.begin()
	revision := uint64(0)
	for round := range 100 {
		for _, key := range []string{"hot", keyf("other.%d", 2*round), keyf("other.%d", 2*round+1)} {
			revision++
			x.change(change{key: key, revision: revision, value: make([]byte, 100)})
		}
		if b, _ := s.take(250); round > 0 && b.changes[0].key == "hot" {
			return
		}
	}
	t.Fatal("the key that changes all the time was never sent")
}

func TestSessionsBatchesHoldWhatTheirRevisionClaims(t *testing.T) {
	x := newIndex()
	source := rand.New(rand.NewPCG(1, 2))
	revision := uint64(0)
	put := func(deleted bool) {
		revision++
		x.change(change{key: keyf("k.%d", source.IntN(20)), revision: revision, deleted: deleted, value: []byte{byte(revision)}})
	}
	for range 100 {
		put(source.IntN(5) == 0)
	}
	s := newSession(x, nil, openRequest{session: "s", window: 1 << 20})
	s.prefixes["k"] = position{}
	s.begin()
	copied := map[string]uint64{}
	for !func() bool {
		for range source.IntN(10) {
			if revision < 1000 {
				put(source.IntN(5) == 0)
			}
		}
		b, _ := s.take(1 + source.IntN(200))
		for _, c := range b.changes {
			if copied[c.key] = c.revision; c.deleted {
				delete(copied, c.key)
			}
		}
		for key, i := range x.items {
			if i.revision <= b.revision && !i.deleted && copied[key] != i.revision {
				t.Fatalf("batch claims revision %d, but %s is at %d, not %d", b.revision, key, copied[key], i.revision)
			}
		}
		return b.complete && revision >= 1000
	}() {
	}
	for key, i := range x.items {
		if !i.deleted && copied[key] != i.revision || i.deleted && copied[key] != 0 {
			t.Errorf("%s: copy %d, publisher %+v", key, copied[key], i)
		}
	}
}
