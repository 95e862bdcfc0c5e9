package sluice

import "fmt"

// String returns what the plan allows, as people write it: the text of its [Limit], such as
// "100/minute burst 20", and of an [InFlight] plan "10 in flight".
func (p *Plan) String() string {
	if p.Kernel == InFlight {
		return fmt.Sprintf("%d in flight", p.Capacity)
	}
	return p.Limit.String()
}

// AlgorithmName returns the name of the limit's algorithm, such as "token_bucket", and of an
// [InFlight] plan "in_flight".
func (p *Plan) AlgorithmName() string {
	if p.Kernel == InFlight {
		return "in_flight"
	}
	return p.Limit.Algorithm.String()
}
