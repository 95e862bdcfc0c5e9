#include "textflag.h"

// func prefetch(first, second *bucket)
TEXT ·prefetch(SB), NOSPLIT, $0-16
	MOVQ first+0(FP), AX
	MOVQ second+8(FP), BX
	PREFETCHT0 (AX)
	PREFETCHT0 (BX)
	RET
