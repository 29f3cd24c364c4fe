package lab

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// identities knows the contents of programs. Safe for concurrent use.
type identities struct {
	mu    sync.Mutex
	known map[fileVersion]string
}

// fileVersion tells a file's contents apart without reading them, as long as the program runs. Builds touch and rewrite
// programs that they do not change, so it does not tell whether two builds are the same.
type fileVersion struct {
	device, inode    uint64
	size             int64
	modified, status unix.Timespec
}

// of says what a process is made of: its words and the contents of every program among them, those that it starts
// itself included. Equal identities mean that a process need not be started anew.
func (i *identities) of(one process) string {
	hash := sha256.New()
	for _, word := range append([]string{one.Namespace}, one.Arguments...) {
		io.WriteString(hash, word+"\x00")
		if filepath.IsAbs(word) && !strings.HasSuffix(word, "/") {
			io.WriteString(hash, i.program(word)+"\x00")
		}
	}
	return hex.EncodeToString(hash.Sum(nil)[:16])
}

// program is the digest of an executable file, "" for anything else.
func (i *identities) program(path string) string {
	var file unix.Stat_t
	if unix.Stat(path, &file) != nil || file.Mode&unix.S_IFMT != unix.S_IFREG || file.Mode&0o111 == 0 {
		return ""
	}
	version := fileVersion{file.Dev, file.Ino, file.Size, file.Mtim, file.Ctim}
	i.mu.Lock()
	defer i.mu.Unlock()
	if digest, known := i.known[version]; known {
		return digest
	}
	content, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer content.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, content); err != nil {
		return ""
	}
	if i.known == nil {
		i.known = map[fileVersion]string{}
	}
	i.known[version] = string(hash.Sum(nil))
	return i.known[version]
}
