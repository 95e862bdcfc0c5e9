#include "textflag.h"

// func prefetch(first, second *bucket)
TEXT ·prefetch(SB), NOSPLIT, $0-16
	LDP  first+0(FP), (R0, R1)
	PRFM (R0), PLDL1KEEP
	PRFM (R1), PLDL1KEEP
	RET
