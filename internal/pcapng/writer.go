// Package pcapng writes captures in the pcapng format (draft-ietf-opsawg-pcapng, section 4), frame by frame, so that what
// was written can be read at any time.
//
//	section header   | 0x0a0d0d0a | length | 0x1a2b3c4d | version 1.0 | section length -1 | length |
//	interface        | 1 | length | link type 1 | 0 | snap length | options: name, resolution | length |
//	enhanced packet  | 6 | length | interface | time high | time low | captured | original | bytes | flags, drops | length |
//
// Deliberately absent: reading, and every block that these captures do not need.
package pcapng

import (
	"encoding/binary"
	"io"
	"time"
)

const (
	sectionBlock   = 0x0a0d0d0a
	interfaceBlock = 1
	packetBlock    = 6
	byteOrderMagic = 0x1a2b3c4d
	ethernetLink   = 1

	optionEnd        = 0
	optionName       = 2 // if_name
	optionResolution = 9 // if_tsresol
	optionFlags      = 2 // epb_flags
	optionDrops      = 4 // epb_dropcount
	nanoseconds      = 9
	inbound          = 1
	outbound         = 2
)

// Frame is one frame of a capture.
type Frame struct {
	// Time is when it passed.
	Time time.Time
	// Interface names where; each name is an interface of the file.
	Interface string
	// Sent tells whether it left there rather than arrived.
	Sent bool
	// Length is that of the frame; Data is the beginning of it.
	Length uint32
	Data   []byte
	// Dropped is how many frames were left out since the last one of this interface.
	Dropped uint64
}

// Writer writes one file. It is not safe for concurrent use.
type Writer struct {
	out        io.Writer
	snapLength uint32
	interfaces map[string]uint32
}

// NewWriter begins a file for frames of at most snapLength bytes.
func NewWriter(out io.Writer, snapLength uint32) (*Writer, error) {
	body := binary.LittleEndian.AppendUint32(nil, byteOrderMagic)
	body = append(body, 1, 0, 0, 0) // version 1.0
	body = binary.LittleEndian.AppendUint64(body, ^uint64(0))
	_, err := out.Write(block(sectionBlock, body))
	return &Writer{out: out, snapLength: snapLength, interfaces: map[string]uint32{}}, err
}

// Write writes a frame, after a description of its interface if that is new; both in one piece.
func (w *Writer) Write(frame Frame) error {
	var bytes []byte
	number, known := w.interfaces[frame.Interface]
	if !known {
		number = uint32(len(w.interfaces))
		w.interfaces[frame.Interface] = number
		bytes = w.describe(frame.Interface)
	}
	moment := uint64(frame.Time.UnixNano())
	var body []byte
	for _, word := range []uint32{number, uint32(moment >> 32), uint32(moment), uint32(len(frame.Data)), frame.Length} {
		body = binary.LittleEndian.AppendUint32(body, word)
	}
	body = pad(append(body, frame.Data...))
	direction := uint32(inbound)
	if frame.Sent {
		direction = outbound
	}
	body = option(body, optionFlags, binary.LittleEndian.AppendUint32(nil, direction))
	if frame.Dropped > 0 {
		body = option(body, optionDrops, binary.LittleEndian.AppendUint64(nil, frame.Dropped))
	}
	bytes = append(bytes, block(packetBlock, option(body, optionEnd, nil))...)
	_, err := w.out.Write(bytes)
	return err
}

// LongestFrame is how many bytes a frame takes in a file at most, its interface's description included.
func LongestFrame(frame Frame) uint64 {
	return uint64(len(frame.Data) + len(frame.Interface) + 128)
}

func (w *Writer) describe(name string) []byte {
	body := binary.LittleEndian.AppendUint16(nil, ethernetLink)
	body = append(body, 0, 0)
	body = binary.LittleEndian.AppendUint32(body, w.snapLength)
	body = option(body, optionName, []byte(name))
	body = option(body, optionResolution, []byte{nanoseconds})
	return block(interfaceBlock, option(body, optionEnd, nil))
}

func option(body []byte, code uint16, value []byte) []byte {
	body = binary.LittleEndian.AppendUint16(body, code)
	body = binary.LittleEndian.AppendUint16(body, uint16(len(value)))
	return pad(append(body, value...))
}

// pad fills up to a multiple of four bytes.
func pad(bytes []byte) []byte {
	return append(bytes, make([]byte, -len(bytes)&3)...)
}

func block(kind uint32, body []byte) []byte {
	length := uint32(len(body) + 12)
	bytes := binary.LittleEndian.AppendUint32(nil, kind)
	bytes = binary.LittleEndian.AppendUint32(bytes, length)
	bytes = append(bytes, body...)
	return binary.LittleEndian.AppendUint32(bytes, length)
}
