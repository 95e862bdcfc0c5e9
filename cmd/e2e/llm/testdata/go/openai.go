package main

import (
	"context"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
)

func openaiClient(c *call, a *answer) openai.Client {
	options := []option.RequestOption{
		option.WithBaseURL(c.URL + "/v1"), option.WithAPIKey(c.Key), option.WithMaxRetries(c.Retries), option.WithMiddleware(a.count),
	}
	for name, value := range c.Headers {
		options = append(options, option.WithHeader(name, value))
	}
	return openai.NewClient(options...)
}

// parameters returns the schema of the tool's parameters.
func parameters() map[string]any {
	return map[string]any{"type": "object", "properties": properties, "required": required}
}

func chat(ctx context.Context, c *call, a *answer) error {
	params := openai.ChatCompletionNewParams{Model: c.Model, Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(c.Text)}}
	if c.MaxTokens > 0 {
		params.MaxCompletionTokens = openai.Int(c.MaxTokens)
	}
	if c.Tools {
		params.Tools = []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{
			Name: toolName, Description: openai.String(toolText), Parameters: parameters(),
		})}
	}
	client := openaiClient(c, a)
	if !c.Stream {
		whole, err := client.Chat.Completions.New(ctx, params)
		if err == nil {
			readChat(whole, a)
		}
		return err
	}
	if c.Usage {
		params.StreamOptions.IncludeUsage = openai.Bool(true)
	}
	stream := client.Chat.Completions.NewStreaming(ctx, params)
	defer stream.Close()
	var whole openai.ChatCompletionAccumulator
	for stream.Next() {
		whole.AddChunk(stream.Current())
		if a.leaves(c) {
			return nil
		}
	}
	if stream.Err() == nil {
		readChat(&whole.ChatCompletion, a)
	}
	return stream.Err()
}

func readChat(whole *openai.ChatCompletion, a *answer) {
	choice := whole.Choices[0]
	a.Text, a.Finish = choice.Message.Content, choice.FinishReason
	for _, wanted := range choice.Message.ToolCalls {
		a.Tool = &tool{wanted.Function.Name, wanted.Function.Arguments}
	}
	if u := whole.Usage; u.TotalTokens > 0 {
		a.Usage = &usage{u.PromptTokens, u.PromptTokensDetails.CachedTokens, u.CompletionTokens}
	}
}

func response(ctx context.Context, c *call, a *answer) error {
	params := responses.ResponseNewParams{Model: c.Model, Input: responses.ResponseNewParamsInputUnion{OfString: openai.String(c.Text)}}
	if c.MaxTokens > 0 {
		params.MaxOutputTokens = openai.Int(c.MaxTokens)
	}
	if c.Tools {
		params.Tools = []responses.ToolUnionParam{responses.ToolParamOfFunction(toolName, parameters(), false)}
	}
	client := openaiClient(c, a)
	if !c.Stream {
		whole, err := client.Responses.New(ctx, params)
		if err == nil {
			readResponse(whole, a)
		}
		return err
	}
	stream := client.Responses.NewStreaming(ctx, params)
	defer stream.Close()
	for stream.Next() {
		event := stream.Current()
		if event.Type == "response.completed" || event.Type == "response.incomplete" {
			readResponse(&event.Response, a)
		}
		if a.leaves(c) {
			return nil
		}
	}
	return stream.Err()
}

func readResponse(whole *responses.Response, a *answer) {
	a.Text, a.Finish = whole.OutputText(), string(whole.Status)
	for _, item := range whole.Output {
		if item.Type == "function_call" {
			wanted := item.AsFunctionCall()
			a.Tool = &tool{wanted.Name, wanted.Arguments}
		}
	}
	u := whole.Usage
	a.Usage = &usage{u.InputTokens, u.InputTokensDetails.CachedTokens, u.OutputTokens}
}
