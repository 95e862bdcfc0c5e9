from fastapi import FastAPI

from sluice import Sluice, SluiceMiddleware

app = FastAPI()
app.add_middleware(SluiceMiddleware, sluice=Sluice("http://localhost:8081"))


@app.get("/api/data")
async def data():
    return {"data": "your resource"}
