package bus

import (
	"context"
	"errors"
	"fmt"
)

// Reasons that callers may test for with errors.Is. Every error of this package wraps one of them, is a
// *RemoteError, or is the context's own error.
var (
	// ErrInvalidKey reports a key, prefix or name that cannot be a subject; the text names the offending part.
	ErrInvalidKey = errors.New("bus: invalid key")
	// ErrNotFound reports that a key has no value.
	ErrNotFound = errors.New("bus: key not found")
	// ErrConflict reports that a compare-and-set lost: the key's revision is not the one expected.
	ErrConflict = errors.New("bus: revision conflict")
	// ErrDenied reports that the server refused the operation to this agent or site.
	ErrDenied = errors.New("bus: permission denied")
	// ErrUnavailable reports that the site's own server did not answer before the context ended.
	ErrUnavailable = errors.New("bus: site server unavailable")
	// ErrClosed reports use of a connection, server or subscription that was closed.
	ErrClosed = errors.New("bus: closed")
	// ErrNoSuchService reports that no agent of the site serves the service asked for.
	ErrNoSuchService = errors.New("bus: no such service")
	// ErrSiteUnreachable reports that there is no link to the site, or that it broke before the reply came. In the
	// second case the request may have been carried out.
	ErrSiteUnreachable = errors.New("bus: site unreachable")
	// ErrTimeout reports that the request's deadline passed without a reply; it may have been carried out.
	ErrTimeout = errors.New("bus: request timed out")
	// ErrTooLarge reports a value, request or reply above MaximumValue.
	ErrTooLarge = errors.New("bus: too large")
	// ErrBusy reports that the service has as many requests in hand as it takes at once; it was not carried out.
	ErrBusy = errors.New("bus: service busy")
)

// Code classifies a service's refusal for programs; the values are the service's own.
type Code string

// MaximumValue bounds a value, a request and a reply, in bytes.
const MaximumValue = 4 << 20

// fits checks that something may travel.
func fits(what string, payload []byte) error {
	if len(payload) > MaximumValue {
		return fmt.Errorf("%w: %s has %d bytes, at most %d", ErrTooLarge, what, len(payload), MaximumValue)
	}
	return nil
}

// Codes that the bus itself gives.
const (
	// CodeInternal is the code of a handler's error that named none.
	CodeInternal Code = "internal"
	// CodePanic is the code of a handler that panicked.
	CodePanic Code = "panic"

	codeNoSuchService   Code = "bus.no_such_service"
	codeSiteUnreachable Code = "bus.site_unreachable"
	codeTimeout         Code = "bus.timeout"
	codeBusy            Code = "bus.busy"
	codeDenied          Code = "bus.denied"
	codeInvalid         Code = "bus.invalid"
	codeTooLarge        Code = "bus.too_large"
)

// Error is what a handler returns to give its refusal a code that travels with it.
type Error struct {
	Code    Code
	Message string
}

// Error returns the code and the message.
func (e *Error) Error() string { return fmt.Sprintf("%s: %s", e.Code, e.Message) }

// RemoteError is a service's refusal as its caller sees it.
type RemoteError struct {
	// Site and Service name who refused.
	Site, Service string
	// Code is the service's own, or CodeInternal.
	Code Code
	// Message is for people.
	Message string
}

// Error returns who refused, the code and the message.
func (e *RemoteError) Error() string {
	return fmt.Sprintf("bus: %s at site %s: %s: %s", e.Service, e.Site, e.Code, e.Message)
}

// busReasons maps the codes that stand for the bus's own reasons.
var busReasons = map[Code]error{
	codeNoSuchService:   ErrNoSuchService,
	codeSiteUnreachable: ErrSiteUnreachable,
	codeTimeout:         ErrTimeout,
	codeBusy:            ErrBusy,
	codeDenied:          ErrDenied,
	codeInvalid:         ErrInvalidKey,
	codeTooLarge:        ErrTooLarge,
}

// remoteError turns a code and message off the wire into the error that the caller sees.
func remoteError(site, service string, code Code, message string) error {
	if reason, ok := busReasons[code]; ok {
		if message == "" {
			return fmt.Errorf("%w: %s at site %s", reason, service, site)
		}
		return fmt.Errorf("%w: %s at site %s: %s", reason, service, site, message)
	}
	return &RemoteError{Site: site, Service: service, Code: code, Message: message}
}

// errorCode is the reverse of remoteError.
func errorCode(err error) (Code, string) {
	var coded *Error
	if errors.As(err, &coded) {
		return coded.Code, coded.Message
	}
	for code, reason := range busReasons {
		if errors.Is(err, reason) {
			return code, err.Error()
		}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return codeTimeout, err.Error()
	}
	return CodeInternal, err.Error()
}
