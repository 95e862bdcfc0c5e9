package grpclimit

import "reflect"

// UnderWay returns the number of calls that c counts as in flight.
func (c *Client) UnderWay() (n int) {
	peers := reflect.ValueOf(&c.pacer).Elem().FieldByName("peers")
	for i := peers.MapRange(); i.Next(); {
		n += i.Value().Elem().FieldByName("underWay").Len()
	}
	return n
}
