package sample

// messages is Anthropic's API Messages.
func messages(x *exchange) {
	if x.prompt.streams(false) {
		x.streamMessage()
		return
	}
	block := object{"type": "text", "text": x.answer.text()}
	if x.answer.tool != "" {
		block = toolUse(x.answer.tool, x.answer.arguments)
	}
	x.whole(x.message(x.answer.output, x.answer.stopReason(), []object{block}))
}

func toolUse(name string, arguments object) object {
	return object{"type": "tool_use", "id": "toolu_sample", "name": name, "input": arguments}
}

func (a *answer) stopReason() string {
	switch {
	case a.cut:
		return "max_tokens"
	case a.tool != "":
		return "tool_use"
	}
	return "end_turn"
}

// message returns a message with a number of output tokens. In this API, the input tokens do not include cached
// ones.
func (x *exchange) message(output int, stopReason any, content []object) object {
	return object{
		"id": "msg_sample", "type": "message", "role": "assistant", "model": x.prompt.Model,
		"content": content, "stop_reason": stopReason, "stop_sequence": nil,
		"usage": object{
			"input_tokens": x.answer.input - x.answer.cached, "cache_read_input_tokens": x.answer.cached,
			"cache_creation_input_tokens": 0, "output_tokens": output,
		},
	}
}

// streamMessage streams events. The first event has the input tokens, and the last but one has the output tokens.
func (x *exchange) streamMessage() {
	event := func(name string, data object) {
		data["type"] = name
		x.event(name, data)
	}
	event("message_start", object{"message": x.message(1, nil, []object{})})
	block, kind, piece := object{"type": "text", "text": ""}, "text_delta", "text"
	if x.answer.tool != "" {
		block, kind, piece = toolUse(x.answer.tool, object{}), "input_json_delta", "partial_json"
	}
	event("content_block_start", object{"index": 0, "content_block": block})
	event("ping", object{})
	x.each(func(text string) {
		event("content_block_delta", object{"index": 0, "delta": object{"type": kind, piece: text}})
	})
	event("content_block_stop", object{"index": 0})
	event("message_delta", object{
		"delta": object{"stop_reason": x.answer.stopReason(), "stop_sequence": nil},
		"usage": object{"output_tokens": x.answer.output},
	})
	event("message_stop", object{})
}
