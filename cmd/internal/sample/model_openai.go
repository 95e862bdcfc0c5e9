package sample

import "net/http"

// models lists the models of the sample in OpenAI's format, which clients of Anthropic also read.
func models(w http.ResponseWriter, _ *http.Request) {
	all := []object{}
	for _, name := range []string{"sample", "sample-fast", "sample-slow", "sample-cached", "sample-fails"} {
		all = append(all, object{"id": name, "object": "model", "created": 0, "owned_by": "sluice", "type": "model", "display_name": name})
	}
	reply(w, http.StatusOK, object{"object": "list", "data": all, "has_more": false})
}

// chat is OpenAI's API Chat Completions.
func chat(x *exchange) {
	if x.prompt.streams(false) {
		x.streamChat()
		return
	}
	message := object{"role": "assistant", "content": x.answer.text(), "refusal": nil}
	if x.answer.tool != "" {
		message["content"] = nil
		message["tool_calls"] = []object{{"id": "call_sample", "type": "function", "function": object{"name": x.answer.tool, "arguments": x.answer.text()}}}
	}
	x.whole(object{
		"id": "chatcmpl-sample", "object": "chat.completion", "created": 0, "model": x.prompt.Model,
		"choices": []object{{"index": 0, "message": message, "logprobs": nil, "finish_reason": x.answer.chatFinish()}},
		"usage":   x.answer.chatUsage(),
	})
}

func (a *answer) chatFinish() string {
	switch {
	case a.cut:
		return "length"
	case a.tool != "":
		return "tool_calls"
	}
	return "stop"
}

func (a *answer) chatUsage() object {
	return object{
		"prompt_tokens": a.input, "completion_tokens": a.output, "total_tokens": a.input + a.output,
		"prompt_tokens_details": object{"cached_tokens": a.cached},
	}
}

// streamChat streams chunks. If the request asks for the usage, a last chunk contains it, and the usage in earlier
// chunks is null.
func (x *exchange) streamChat() {
	chunk := func(usage any, choices []object) {
		c := object{"id": "chatcmpl-sample", "object": "chat.completion.chunk", "created": 0, "model": x.prompt.Model, "choices": choices}
		if x.prompt.StreamOptions.IncludeUsage {
			c["usage"] = usage
		}
		x.event("", c)
	}
	delta := func(d object) { chunk(nil, []object{{"index": 0, "delta": d, "finish_reason": nil}}) }
	first := object{"role": "assistant", "content": ""}
	if x.answer.tool != "" {
		first["content"] = nil
		first["tool_calls"] = []object{{"index": 0, "id": "call_sample", "type": "function", "function": object{"name": x.answer.tool, "arguments": ""}}}
	}
	delta(first)
	x.each(func(piece string) {
		if x.answer.tool != "" {
			delta(object{"tool_calls": []object{{"index": 0, "function": object{"arguments": piece}}}})
		} else {
			delta(object{"content": piece})
		}
	})
	chunk(nil, []object{{"index": 0, "delta": object{}, "finish_reason": x.answer.chatFinish()}})
	if x.prompt.StreamOptions.IncludeUsage {
		chunk(x.answer.chatUsage(), []object{})
	}
	x.event("", raw("[DONE]"))
}

// responses is OpenAI's API Responses.
func responses(x *exchange) {
	if x.prompt.streams(false) {
		x.streamResponse()
		return
	}
	x.whole(x.response(x.answer.status(), []object{x.outputItem("completed", x.answer.text())}))
}

func (a *answer) status() string {
	if a.cut {
		return "incomplete"
	}
	return "completed"
}

// response returns a response with a status and output items. It has a usage unless it is in progress.
func (x *exchange) response(status string, output []object) object {
	r := object{
		"id": "resp_sample", "object": "response", "created_at": 0, "model": x.prompt.Model, "status": status, "output": output,
		"error": nil, "incomplete_details": nil, "usage": nil, "parallel_tool_calls": false, "tools": []object{}, "tool_choice": "auto",
	}
	if status == "incomplete" {
		r["incomplete_details"] = object{"reason": "max_output_tokens"}
	}
	if status != "in_progress" {
		r["usage"] = object{
			"input_tokens": x.answer.input, "input_tokens_details": object{"cached_tokens": x.answer.cached},
			"output_tokens": x.answer.output, "output_tokens_details": object{"reasoning_tokens": 0},
			"total_tokens": x.answer.input + x.answer.output,
		}
	}
	return r
}

// outputItem returns the item with the text or with the arguments of a call.
func (x *exchange) outputItem(status, text string) object {
	if x.answer.tool != "" {
		return object{"type": "function_call", "id": "fc_sample", "call_id": "call_sample", "status": status, "name": x.answer.tool, "arguments": text}
	}
	content := []object{}
	if text != "" {
		content = append(content, textPart(text))
	}
	return object{"type": "message", "id": "msg_sample", "role": "assistant", "status": status, "content": content}
}

func textPart(text string) object {
	return object{"type": "output_text", "text": text, "annotations": []object{}}
}

func (x *exchange) streamResponse() {
	sequence := 0
	event := func(name string, data object) {
		data["type"], data["sequence_number"] = name, sequence
		sequence++
		x.event(name, data)
	}
	item, part, piece := "msg_sample", "response.output_text", "text"
	if x.answer.tool != "" {
		item, part, piece = "fc_sample", "response.function_call_arguments", "arguments"
	}
	at := func(more object) object {
		more["item_id"], more["output_index"] = item, 0
		if x.answer.tool == "" {
			more["content_index"] = 0
		}
		return more
	}
	event("response.created", object{"response": x.response("in_progress", []object{})})
	event("response.output_item.added", object{"output_index": 0, "item": x.outputItem("in_progress", "")})
	if x.answer.tool == "" {
		event("response.content_part.added", at(object{"part": textPart("")}))
	}
	x.each(func(text string) { event(part+".delta", at(object{"delta": text})) })
	event(part+".done", at(object{piece: x.answer.text()}))
	if x.answer.tool == "" {
		event("response.content_part.done", at(object{"part": textPart(x.answer.text())}))
	}
	whole, status := x.outputItem("completed", x.answer.text()), x.answer.status()
	event("response.output_item.done", object{"output_index": 0, "item": whole})
	event("response."+status, object{"response": x.response(status, []object{whole})})
}
