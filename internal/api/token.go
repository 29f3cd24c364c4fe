package api

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const (
	tokenBytes                = 32
	shortestToken             = 16
	tokenMode     fs.FileMode = 0o600
)

// Token reads the API's token from a file; the first time it makes one, in a file that only its owner can read.
func Token(path string) (string, error) {
	token, err := ReadToken(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return token, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", fmt.Errorf("token file: %w", err)
	}
	var raw [tokenBytes]byte
	rand.Read(raw[:])
	token = base64.RawURLEncoding.EncodeToString(raw[:])
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, tokenMode)
	if errors.Is(err, fs.ErrExist) {
		return ReadToken(path) // another process was first
	}
	if err != nil {
		return "", fmt.Errorf("token file: %w", err)
	}
	_, err = file.WriteString(token + "\n")
	if e := file.Close(); err == nil {
		err = e
	}
	if err != nil {
		return "", fmt.Errorf("token file: %w", err)
	}
	return token, nil
}

// ReadToken reads a token that Token made.
func ReadToken(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("token file: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("token file %s can be read by others (mode %04o); run chmod 600 %s", path, info.Mode().Perm(), path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("token file: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if len(token) < shortestToken {
		return "", fmt.Errorf("token file %s holds no token; remove it to have one made", path)
	}
	return token, nil
}
