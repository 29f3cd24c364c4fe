package pcapng

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/switchboard-project/switchboard/internal/needs"
)

// TestAnotherReaderReads: tshark reads every field that was written.
func TestAnotherReaderReads(t *testing.T) {
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		needs.Missing(t, "tshark: run scripts/install-dependencies.sh")
	}
	var out bytes.Buffer
	w, err := NewWriter(&out, 20)
	if err != nil {
		t.Fatal(err)
	}
	moment := time.Unix(1_700_000_000, 123_456_789)
	arp := append(bytes.Repeat([]byte{0xff}, 6), 2, 0, 0, 0, 0, 1, 8, 6, 0, 1, 8, 0, 6, 4)
	for _, frame := range []Frame{
		{Time: moment, Interface: "f1/wan", Length: 60, Data: arp},
		{Time: moment.Add(time.Microsecond), Interface: "f2/wan", Sent: true, Length: 20, Data: arp, Dropped: 7},
		{Time: moment.Add(time.Second), Interface: "f1/wan", Sent: true, Length: 61, Data: arp[:19]},
	} {
		if err := w.Write(frame); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(t.TempDir(), "written.pcapng")
	if err := os.WriteFile(file, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	fields := []string{"frame.time_epoch", "frame.interface_name", "frame.packet_flags_direction", "frame.len", "frame.cap_len", "eth.src", "eth.type"}
	arguments := []string{"-n", "-r", file, "-T", "fields", "-E", "separator=,"}
	for _, field := range fields {
		arguments = append(arguments, "-e", field)
	}
	text, err := exec.Command(tshark, arguments...).Output()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"1700000000.123456789,f1/wan,1,60,20,02:00:00:00:00:01,0x0806",
		"1700000000.123457789,f2/wan,2,20,20,02:00:00:00:00:01,0x0806",
		"1700000001.123456789,f1/wan,2,61,19,02:00:00:00:00:01,0x0806",
	}
	got := strings.Split(strings.TrimSpace(string(text)), "\n")
	for i := range want {
		if i >= len(got) || strings.ReplaceAll(got[i], "0x00000001", "1") != want[i] && strings.ReplaceAll(got[i], "0x00000002", "2") != want[i] {
			t.Errorf("tshark reads %q, not %q", got, want[i])
		}
	}
	if len(got) != len(want) {
		t.Errorf("tshark reads %d frames, not %d", len(got), len(want))
	}
}
