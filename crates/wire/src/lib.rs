//! Header codecs from Ethernet to NSH: no input or output, no unsafe code.
