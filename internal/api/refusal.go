package api

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/http"
	"strings"

	"connectrpc.com/connect"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	"github.com/switchboard-project/switchboard/internal/bus"
	"github.com/switchboard-project/switchboard/internal/chain"
	"github.com/switchboard-project/switchboard/internal/global"
	"github.com/switchboard-project/switchboard/internal/resource"
)

func kindOf(word string) (chain.Kind, error) {
	kind, ok := resource.ParseKind(word)
	if ok {
		return kind, nil
	}
	description := "is missing"
	if word != "" {
		description = "there is no kind " + word
	}
	return "", &global.Invalid{Findings: []chain.Finding{{Field: "kind", Description: description,
		Fix: "use one of " + strings.Join(resource.KindWords(), ", ")}}}
}

// connectError gives an error its code and details.
func connectError(err error) error {
	var invalid *global.Invalid
	var refused *global.Refused
	var already *connect.Error
	switch {
	case err == nil || errors.As(err, &already):
		return err
	case errors.As(err, &invalid):
		return withViolations(invalid)
	case errors.As(err, &refused):
		return connect.NewError(refusedCode(refused.Reason), err)
	case errors.Is(err, context.Canceled):
		return connect.NewError(connect.CodeCanceled, err)
	case errors.Is(err, context.DeadlineExceeded):
		return connect.NewError(connect.CodeDeadlineExceeded, err)
	case errors.Is(err, bus.ErrUnavailable), errors.Is(err, bus.ErrClosed):
		return connect.NewError(connect.CodeUnavailable, err)
	}
	return connect.NewError(connect.CodeInternal, err)
}

func refusedCode(reason global.Reason) connect.Code {
	switch reason {
	case global.NotFound:
		return connect.CodeNotFound
	case global.Observed:
		return connect.CodeInvalidArgument
	case global.Unavailable:
		return connect.CodeUnavailable
	}
	return connect.CodeFailedPrecondition
}

func withViolations(invalid *global.Invalid) error {
	e := connect.NewError(connect.CodeInvalidArgument, invalid)
	violations := &api.Violations{}
	for _, f := range invalid.Findings {
		violations.Violations = append(violations.Violations, &api.FieldViolation{Resource: uint32(f.Resource), Field: f.Field,
			Description: f.Description, Fix: f.Fix})
	}
	if detail, err := connect.NewErrorDetail(violations); err == nil {
		e.AddDetail(detail)
	}
	return e
}

// refusals turns every error on its way out into one of Connect.
type refusals struct{}

// WrapUnary wraps single answers.
func (refusals) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
		response, err := next(ctx, r)
		return response, connectError(err)
	}
}

// WrapStreamingClient changes nothing: this is a server.
func (refusals) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler wraps streams.
func (refusals) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, stream connect.StreamingHandlerConn) error {
		return connectError(next(ctx, stream))
	}
}

// authenticated lets holders of the token pass. The token is compared by its hash, in constant time.
func authenticated(token string, next http.Handler) http.Handler {
	want := sha256.Sum256([]byte(token))
	refuse := connect.NewErrorWriter()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		given, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		got := sha256.Sum256([]byte(given))
		if r.URL.Path == "/healthz" || bearer && subtle.ConstantTimeCompare(got[:], want[:]) == 1 {
			next.ServeHTTP(w, r)
			return
		}
		err := connect.NewError(connect.CodeUnauthenticated, errors.New("the token is missing or wrong; send the header Authorization: Bearer TOKEN"))
		if refuse.IsSupported(r) {
			_ = refuse.Write(w, r, err) // a caller that has gone needs no answer
			return
		}
		http.Error(w, err.Message(), http.StatusUnauthorized)
	})
}
