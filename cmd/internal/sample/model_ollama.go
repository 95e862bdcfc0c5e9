package sample

// ollama is Ollama's API Chat, which streams lines of JSON by default.
func ollama(x *exchange) {
	line := func(message object) object {
		message["role"] = "assistant"
		return object{"model": x.prompt.Model, "created_at": "1970-01-01T00:00:00Z", "message": message, "done": false}
	}
	last := func(message object) object {
		l := line(message)
		l["done"], l["done_reason"] = true, "stop"
		if x.answer.cut {
			l["done_reason"] = "length"
		}
		l["prompt_eval_count"], l["eval_count"] = x.answer.input, x.answer.output
		return l
	}
	whole := object{"content": x.answer.text()}
	if x.answer.tool != "" {
		whole = object{"content": "", "tool_calls": []object{{"function": object{"name": x.answer.tool, "arguments": x.answer.arguments}}}}
	}
	switch {
	case !x.prompt.streams(true):
		x.whole(last(whole))
	case x.answer.tool != "": // calls are not streamed in pieces
		x.each(func(string) {})
		x.line(line(whole))
		x.line(last(object{"content": ""}))
	default:
		x.each(func(piece string) { x.line(line(object{"content": piece})) })
		x.line(last(object{"content": ""}))
	}
}
