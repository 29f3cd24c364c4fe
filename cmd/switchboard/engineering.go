package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"

	"github.com/switchboard-project/switchboard/internal/global"
)

// engineeringFlags say who finds routes.
type engineeringFlags struct {
	program, credentials string
	workers              int
	limit                time.Duration
}

func (e *engineeringFlags) define(f *pflag.FlagSet) {
	f.StringVar(&e.program, "te", "", "the program switchboard-te; beside this program or in PATH where not given")
	f.IntVar(&e.workers, "te-workers", 1, "how many optimisers (switchboard-te serve) this process runs; 0 to use only those started elsewhere")
	f.StringVar(&e.credentials, "te-credentials", "", "the optimisers' credentials (default optimiser.default.json beside --credentials)")
	durationFlag(f, &e.limit, "te-time-limit", 10*time.Second, "how long the search for one chain's routes may take")
}

const maximumWorkers = 64

// config says which optimisers run and how long they may take; credentials are the Global Switchboard's.
func (e *engineeringFlags) config(credentials string) (global.EngineeringConfig, error) {
	config := global.EngineeringConfig{TimeLimit: e.limit}
	if e.workers < 0 || e.workers > maximumWorkers {
		return config, fmt.Errorf("--te-workers: %d; write 0 to %d", e.workers, maximumWorkers)
	}
	if e.workers == 0 {
		return config, nil
	}
	program, err := findEngineering(e.program)
	if err != nil {
		return config, err
	}
	config.Workers = global.WorkersConfig{Program: program, Count: e.workers,
		Credentials: cmp.Or(e.credentials, filepath.Join(filepath.Dir(credentials), "optimiser.default.json"))}
	return config, nil
}

// findEngineering finds switchboard-te: where told, beside this program, or in PATH.
func findEngineering(given string) (string, error) {
	const name = "switchboard-te"
	if given != "" {
		if _, err := exec.LookPath(given); err != nil {
			return "", fmt.Errorf("--te: %w", err)
		}
		return given, nil
	}
	if self, err := os.Executable(); err == nil {
		if beside := filepath.Join(filepath.Dir(self), name); isProgram(beside) {
			return beside, nil
		}
	}
	found, err := exec.LookPath(name)
	if err != nil {
		return "", errors.New("switchboard-te is neither beside this program nor in PATH; say where it is with --te")
	}
	return found, nil
}

func isProgram(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0
}
