<?php
// Every upstream reports each request as a line of JSON in the file LOG.

function text($v) {
    if (is_array($v)) return count($v) == 1 && is_scalar(reset($v)) ? (string) reset($v) : null;
    return is_string($v) || is_int($v) || is_float($v) ? (string) $v : null;
}

function member($v, $name) {
    return is_array($v) ? $v[$name] ?? null : (is_object($v) ? $v->$name ?? null : null);
}

$body = file_get_contents('php://input');
$uri = $_SERVER['REQUEST_URI'];
$path = parse_url($uri, PHP_URL_PATH);
parse_str($body, $form);
parse_str($_SERVER['QUERY_STRING'] ?? '', $query);
$route = fn($p) => is_string($p) ? '/' . trim($p, '/') : null;

$took = [
    'path parse_url' => $route($path),
    'path rawurldecode' => is_string($path) ? $route(rawurldecode($path)) : null,
    'path urldecode' => is_string($path) ? $route(urldecode($path)) : null,
    'path explode' => $route(explode('?', $uri, 2)[0]),
    'path decoded first' => $route(parse_url(rawurldecode($uri), PHP_URL_PATH)),
    'body $_POST' => $_POST['user_name'] ?? null,
    'body $_REQUEST' => $_REQUEST['user_name'] ?? null,
    'body json_decode' => member(json_decode($body, true), 'user_name'),
    'body json object' => member(json_decode($body), 'user_name'),
    'body json, else $_POST' => member(json_decode($body, true), 'user_name') ?? $_POST['user_name'] ?? null,
    'body parse_str' => $form['user_name'] ?? null,
    'body filter_input' => filter_input(INPUT_POST, 'user_name'),
    'query $_GET' => $_GET['user_name'] ?? null,
    'query parse_str' => $query['user_name'] ?? null,
    'cookie $_COOKIE' => $_COOKIE['user_name'] ?? null,
    'header $_SERVER' => $_SERVER['HTTP_X_USER_NAME'] ?? null,
    'host HTTP_HOST' => $_SERVER['HTTP_HOST'] ?? null,
];
// The values that a web server in front has set.
foreach (['LOCATION' => 'path location', 'LOCATION_REGEX' => 'path regex', 'MATCH_FOUND' => 'path LocationMatch',
          'ARGUMENT' => 'query $arg_', 'COOKIE_ARGUMENT' => 'cookie $cookie_'] as $name => $idiom) {
    if (isset($_SERVER[$name])) $took[$idiom] = $_SERVER[$name];
}
if (PHP_SAPI === 'cli-server') $took['path PATH_INFO'] = $route($_SERVER['PATH_INFO'] ?? null);
$took = array_map('text', $took);
$line = json_encode(
    ['upstream' => $_SERVER['NAME'] ?? getenv('NAME'), 'trial' => $_SERVER['HTTP_X_TRIAL'] ?? '', 'took' => (object) $took],
    JSON_INVALID_UTF8_SUBSTITUTE | JSON_UNESCAPED_SLASHES) . "\n";
file_put_contents($_SERVER['LOG'] ?? getenv('LOG'), $line, FILE_APPEND);
header('Content-Type: application/json');
echo $line;
