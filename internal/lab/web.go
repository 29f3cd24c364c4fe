package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"
)

// ServeHTTP is the laboratory's web server: / says who the client is, as the server sees it; /bytes/N sends N bytes.
// It runs until ctx ends.
func ServeHTTP(ctx context.Context, address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	routes := http.NewServeMux()
	routes.HandleFunc("GET /{$}", func(response http.ResponseWriter, request *http.Request) {
		fmt.Fprintf(response, "hello %s, this is %s\n", request.RemoteAddr, request.Host)
	})
	routes.HandleFunc("GET /bytes/{count}", sendBytes)
	server := &http.Server{Handler: routes, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		<-ctx.Done()
		_ = server.Close()
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// maximumBytes bounds one answer of /bytes.
const maximumBytes = 1 << 40

func sendBytes(response http.ResponseWriter, request *http.Request) {
	count, err := strconv.ParseInt(request.PathValue("count"), 10, 64)
	if err != nil || count < 0 || count > maximumBytes {
		http.Error(response, fmt.Sprintf("%q: write a number of bytes up to %d", request.PathValue("count"), int64(maximumBytes)), http.StatusBadRequest)
		return
	}
	response.Header().Set("Content-Length", strconv.FormatInt(count, 10))
	response.Header().Set("Content-Type", "application/octet-stream")
	block := make([]byte, 64<<10)
	for count > 0 {
		part := min(count, int64(len(block)))
		if _, err := response.Write(block[:part]); err != nil {
			return
		}
		count -= part
	}
}
