package bus

import (
	"fmt"
	"strings"
)

// maximumKeyLength bounds a key in bytes, well under the server's control-line limit of 4 096.
const maximumKeyLength = 1024

// Key joins tokens into a key, escaping what a subject cannot carry: every byte outside A–Z, a–z, 0–9, '-' and '_'
// becomes '=' and two hexadecimal digits. Distinct token lists give distinct keys. An empty token gives a key that
// every operation rejects with ErrInvalidKey.
func Key(tokens ...string) string {
	var b strings.Builder
	for i, token := range tokens {
		if i > 0 {
			b.WriteByte('.')
		}
		for j := 0; j < len(token); j++ {
			if c := token[j]; plainKeyByte(c) {
				b.WriteByte(c)
			} else {
				fmt.Fprintf(&b, "=%02X", c)
			}
		}
	}
	return b.String()
}

// SplitKey is the inverse of Key. It fails with ErrInvalidKey on a key that Key could not have made.
func SplitKey(key string) ([]string, error) {
	if err := validKey(key); err != nil {
		return nil, err
	}
	tokens := strings.Split(key, ".")
	for i, token := range tokens {
		plain, err := unescape(token)
		if err != nil {
			return nil, fmt.Errorf("%w: %q: token %d: %v", ErrInvalidKey, key, i+1, err)
		}
		tokens[i] = plain
	}
	return tokens, nil
}

func unescape(token string) (string, error) {
	if !strings.Contains(token, "=") {
		return token, nil
	}
	var b strings.Builder
	for i := 0; i < len(token); i++ {
		if token[i] != '=' {
			b.WriteByte(token[i])
			continue
		}
		var c byte
		if len(token) < i+3 {
			return "", fmt.Errorf("escape %q is cut short", token[i:])
		}
		if _, err := fmt.Sscanf(token[i+1:i+3], "%02X", &c); err != nil || fmt.Sprintf("%02X", c) != token[i+1:i+3] {
			return "", fmt.Errorf("escape %q is not '=' and two upper-case hexadecimal digits", token[i:i+3])
		}
		if plainKeyByte(c) {
			return "", fmt.Errorf("escape %q stands for a byte that needs none", token[i:i+3])
		}
		b.WriteByte(c)
		i += 2
	}
	return b.String(), nil
}

func plainKeyByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_'
}

// validKey checks that every token is present and consists of plain bytes and escapes.
func validKey(key string) error {
	if key == "" {
		return fmt.Errorf("%w: it is empty", ErrInvalidKey)
	}
	if len(key) > maximumKeyLength {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrInvalidKey, len(key), maximumKeyLength)
	}
	for i, token := range strings.Split(key, ".") {
		if token == "" {
			return fmt.Errorf("%w: %q: token %d is empty", ErrInvalidKey, key, i+1)
		}
		for j := 0; j < len(token); j++ {
			if c := token[j]; !plainKeyByte(c) && c != '=' {
				return fmt.Errorf("%w: %q: token %d has byte %q; build keys with bus.Key", ErrInvalidKey, key, i+1, c)
			}
		}
	}
	return nil
}

// validPrefix is validKey that also takes "", the prefix of every key.
func validPrefix(prefix string) error {
	if prefix == "" {
		return nil
	}
	return validKey(prefix)
}

// validSite checks a site's name: it is one token of a subject and one label of a DNS name.
func validSite(site string) error {
	if site == "" || len(site) > 63 {
		return fmt.Errorf("%w: site name %q: give 1 to 63 characters", ErrInvalidKey, site)
	}
	for i := 0; i < len(site); i++ {
		c := site[i]
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' && i > 0 && i < len(site)-1 {
			continue
		}
		return fmt.Errorf("%w: site name %q: use a–z, 0–9 and '-' inside", ErrInvalidKey, site)
	}
	return nil
}

// validName checks the name of an agent, a bucket or a kind: one plain token.
func validName(what, name string) error {
	if name == "" || len(name) > 128 {
		return fmt.Errorf("%w: %s %q: give 1 to 128 characters", ErrInvalidKey, what, name)
	}
	for i := 0; i < len(name); i++ {
		if !plainKeyByte(name[i]) {
			return fmt.Errorf("%w: %s %q: use A–Z, a–z, 0–9, '-' and '_'", ErrInvalidKey, what, name)
		}
	}
	return nil
}
