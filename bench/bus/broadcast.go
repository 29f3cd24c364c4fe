package main

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"time"

	"github.com/switchboard-project/switchboard/internal/bus/emulated"
)

// The peer in figure 9: full-mesh broadcast. The publisher has a TCP connection to every subscriber and sends each its
// own copy; what a connection does not take waits in a queue of its own, and is dropped when that is full, as ZeroMQ's
// publish sockets do. It stores nothing and syncs nothing, which is in its favour.
const (
	broadcastQueue = 1000 // messages; ZeroMQ's default high-water mark
	// socketBuffer keeps the kernel from hiding queues longer than a wide-area connection would have.
	socketBuffer = 64 << 10
)

// overBroadcast runs the set-up over full-mesh broadcast.
func overBroadcast(rate float64) (outcome, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return outcome{}, err
	}
	defer listener.Close()
	uplink := emulated.NewPipe(uplinkBitsPerSec, uplinkQueue)
	o := &observer{}
	var paths []*emulated.Path
	var queues []chan []byte
	defer func() {
		for _, q := range queues {
			close(q)
		}
		for _, p := range paths {
			p.Close()
		}
	}()
	for site := range subscribingSites {
		for range subscribersPerSite {
			path, err := emulated.NewPath(listener.Addr().String(), siteDelay(site), nil, uplink)
			if err != nil {
				return outcome{}, err
			}
			paths = append(paths, path)
			if err := subscribeBroadcast(path.Address(), o); err != nil {
				return outcome{}, err
			}
			connection, err := listener.Accept()
			if err != nil {
				return outcome{}, err
			}
			if err := connection.(*net.TCPConn).SetWriteBuffer(socketBuffer); err != nil {
				return outcome{}, err
			}
			queue := make(chan []byte, broadcastQueue)
			queues = append(queues, queue)
			go send(connection, queue)
		}
	}
	time.Sleep(200 * time.Millisecond)
	before := crossed(paths)
	o.deadline = time.Now().Add(runTime)
	n, err := publishAt(rate, func(_ int, update []byte) error {
		for _, q := range queues {
			select {
			case q <- update:
			default: // dropped
			}
		}
		return nil
	})
	if err != nil {
		return outcome{}, err
	}
	return o.outcome(crossed(paths)-before, n), nil
}

func send(connection net.Conn, queue <-chan []byte) {
	defer connection.Close()
	for update := range queue {
		frame := binary.BigEndian.AppendUint32(nil, uint32(len(update)))
		if _, err := connection.Write(append(frame, update...)); err != nil {
			for range queue { // the run is over
			}
			return
		}
	}
}

func subscribeBroadcast(address string, o *observer) error {
	connection, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	go func() {
		defer connection.Close()
		in := bufio.NewReader(connection)
		for {
			var size [4]byte
			if _, err := io.ReadFull(in, size[:]); err != nil {
				return
			}
			update := make([]byte, binary.BigEndian.Uint32(size[:]))
			if _, err := io.ReadFull(in, update); err != nil {
				return
			}
			o.saw(update)
		}
	}()
	return nil
}
