package hostnet

import "fmt"

// DisableLearning makes a bridge send what comes in by a port to its other ports whatever it has seen before: for bridges
// of two ports that see the same addresses on both sides.
func (n *Namespace) DisableLearning(port string) error {
	link, err := n.get(port)
	if err != nil {
		return err
	}
	if err := n.links.LinkSetLearning(link, false); err != nil {
		return fmt.Errorf("stop learning on %s in %s: %w", port, n.Name, err)
	}
	return nil
}
