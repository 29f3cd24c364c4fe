package api

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// Listen opens one listener: "unix:PATH", "tcp:ADDRESS:PORT", or "fd:N" for a listening socket handed over by a
// supervisor. A socket file that nobody answers at is replaced.
func Listen(where string) (net.Listener, error) {
	kind, address, ok := strings.Cut(where, ":")
	if !ok || address == "" {
		return nil, fmt.Errorf("listen %q: write unix:PATH, tcp:ADDRESS:PORT or fd:N", where)
	}
	switch kind {
	case "unix":
		return listenUnix(address)
	case "tcp":
		return net.Listen("tcp", address)
	case "fd":
		return listenDescriptor(address)
	}
	return nil, fmt.Errorf("listen %q: %q is unknown; write unix:PATH, tcp:ADDRESS:PORT or fd:N", where, kind)
}

// socketMode lets the owner alone connect.
const socketMode fs.FileMode = 0o600

func listenUnix(path string) (net.Listener, error) {
	if info, err := os.Lstat(path); err == nil {
		if info.Mode()&fs.ModeSocket == 0 {
			return nil, fmt.Errorf("listen unix:%s: the file is no socket; name another", path)
		}
		if c, err := net.DialTimeout("unix", path, time.Second); err == nil {
			_ = c.Close()
			return nil, fmt.Errorf("listen unix:%s: another program answers there", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("listen unix:%s: %w", path, err)
		}
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, socketMode); err != nil {
		_ = l.Close()
		return nil, err
	}
	return l, nil
}

func listenDescriptor(text string) (net.Listener, error) {
	number, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("listen fd:%s: write the number of a file descriptor", text)
	}
	file := os.NewFile(uintptr(number), "listener")
	defer file.Close()
	l, err := net.FileListener(file)
	if err != nil {
		return nil, fmt.Errorf("listen fd:%d: it is no listening socket: %w", number, err)
	}
	return l, nil
}

const (
	headerTimeout = 10 * time.Second
	// farewell is how long requests in hand may take when the server ends; watches are cut.
	farewell = 2 * time.Second
)

// Serve answers on listeners until ctx ends: HTTP/1.1 and, without encryption, HTTP/2, which gRPC needs.
func Serve(ctx context.Context, handler http.Handler, listeners ...net.Listener) error {
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	life, cancel := context.WithCancel(ctx)
	defer cancel()
	server := &http.Server{Handler: handler, Protocols: protocols, ReadHeaderTimeout: headerTimeout,
		BaseContext: func(net.Listener) context.Context { return life }}
	failures := make(chan error, len(listeners))
	for _, l := range listeners {
		go func() { failures <- server.Serve(l) }()
	}
	select {
	case err := <-failures:
		_ = server.Close()
		return err
	case <-ctx.Done():
	}
	last, stop := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer stop()
	if err := server.Shutdown(last); errors.Is(err, context.DeadlineExceeded) {
		return server.Close()
	} else if err != nil {
		return err
	}
	return nil
}
