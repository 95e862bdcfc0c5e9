package grpclimit

import "reflect"

// UnderWay returns how many calls are kept as being under way.
func (c *Client) UnderWay() (n int) {
	peers := reflect.ValueOf(&c.pacer).Elem().FieldByName("peers")
	for i := peers.MapRange(); i.Next(); {
		n += i.Value().Elem().FieldByName("underWay").Len()
	}
	return n
}
