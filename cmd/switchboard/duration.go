package main

import (
	"errors"
	"time"

	"github.com/spf13/pflag"
)

// duration is a flag's time; whoever writes one writes one above zero.
type duration struct{ value *time.Duration }

// durationFlag adds a flag that takes a time above zero. A default of 0 stands for what the usage says.
func durationFlag(flags *pflag.FlagSet, value *time.Duration, name string, fallback time.Duration, usage string) {
	*value = fallback
	flags.Var(duration{value}, name, usage)
}

// Set reads the flag.
func (d duration) Set(text string) error {
	read, err := time.ParseDuration(text)
	if err != nil {
		return errors.New("write a time, for example 500ms, 30s or 2m")
	}
	if read <= 0 {
		return errors.New("write a time above zero, for example 30s")
	}
	*d.value = read
	return nil
}

// String shows the default in the help.
func (d duration) String() string {
	if d.value == nil || *d.value == 0 {
		return ""
	}
	return d.value.String()
}

// Type is what the help calls the flag's value.
func (duration) Type() string { return "duration" }
