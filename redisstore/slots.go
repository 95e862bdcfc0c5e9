package redisstore

import "bytes"

const slots = 16384

// slot returns the hash slot of a name: the CRC-16/XMODEM of its first {hash tag}, or of the whole name if the tag
// is missing or empty.
func slot(name []byte) uint16 {
	if i := bytes.IndexByte(name, '{'); i >= 0 {
		if n := bytes.IndexByte(name[i+1:], '}'); n > 0 {
			name = name[i+1 : i+1+n]
		}
	}
	var crc uint16
	for _, b := range name {
		crc = crc<<8 ^ crcTable[byte(crc>>8)^b]
	}
	return crc % slots
}

var crcTable = func() (table [256]uint16) {
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			carry := crc>>15 != 0
			crc <<= 1
			if carry {
				crc ^= 0x1021
			}
		}
		table[i] = crc
	}
	return table
}()
