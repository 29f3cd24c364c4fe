// Package fault names the steps at which tests end the process as kill -9 would, to show that nothing is lost there.
// The steps are compiled in with the build tag "faults" only; otherwise Point does nothing.
//
// The environment variable SWITCHBOARD_FAULT holds the name of one step. A name followed by ":N" ends the process when
// the step is reached for the N-th time.
package fault
