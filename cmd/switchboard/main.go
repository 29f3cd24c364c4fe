// Command switchboard is the control plane of Switchboard: sites, the Global
// Switchboard, platform services, the laboratory and the command line.
package main

func main() {}
