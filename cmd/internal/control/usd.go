package control

import (
	"strconv"

	"github.com/sluicehq/sluice/internal/printable"
)

// Amounts has the numbers of a limit in USD as decimal text, such as "0.50".
type Amounts struct {
	Capacity  string `json:"capacity"`
	Cost      string `json:"cost,omitempty"`
	Used      string `json:"used"`
	Remaining string `json:"remaining"`
}

// AmountsOf returns numbers in micro-USD as decimal text, or nil if the limit is not in USD.
func AmountsOf(inUSD bool, capacity, used, remaining int64) *Amounts {
	if !inUSD {
		return nil
	}
	return &Amounts{Capacity: printable.FormatDecimal(capacity), Used: printable.FormatDecimal(used), Remaining: printable.FormatDecimal(remaining)}
}

// Text formats a number of a limit, as in "0.50 USD", or as an integer if a is nil.
func (a *Amounts) Text(n int64) string {
	if a == nil {
		return strconv.FormatInt(n, 10)
	}
	return printable.FormatMoney(n)
}
